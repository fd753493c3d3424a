// SPDX-License-Identifier: Apache-2.0
//
// The status page: asks /status.json once a second and shows what it says. Charts begin with
// /history.json, what the coordinator has seen before the page was opened.
'use strict';

const POLL_MILLISECONDS = 1000;
const TIMEOUT_MILLISECONDS = 5000;
const POINTS_MAX = 600;
const ROWS_MAX = 40;
// A worker's step is as old as its last report, so a worker that is less behind is not late.
const LATE_SECONDS = 3;

let points = null;
let status = null;
let eventsShown = '';
let earlierEvents = [];
const showsAll = {workers: false, servers: false};
const marks = (x) => () => (status ? eventMarks(status.events, x) : []);
const syncChart = new SyncChart(document.getElementById('sync-chart'), document.getElementById('sync-legend'), 'time', marks('time'));
const losses = lossChart(document.getElementById('loss-chart'), marks('step'));
const speed = speedChart(document.getElementById('speed-chart'), 'time', marks('time'));

// ---- points ----

const lists = (all) => [...Object.keys(all).filter((key) => key !== 'phases').map((key) => [all, key]),
  ...Object.keys(all.phases).map((key) => [all.phases, key])];

// Adds what is new of `recent`; false where there is a gap that only the history fills.
function addPoints(recent) {
  const newest = last(points.time) ?? 0;
  const first = recent.time.findIndex((time) => time > newest);
  if (first === -1) return true;
  if (first === 0 && points.time.length > 0 && recent.time.length > 1) return false;
  const from = lists(recent);
  lists(points).forEach(([owner, key], i) => {
    const [source, name] = from[i];
    owner[key] = [...owner[key], ...source[name].slice(first)].slice(-POINTS_MAX);
  });
  return true;
}

// What the coordinator has, behind what was before it: a new coordinator begins anew.
function joinPoints(earlier, all) {
  if (earlier === null || all.time.length === 0) return earlier ?? all;
  const kept = earlier.time.filter((time) => time < all.time[0]).length;
  const from = lists(earlier);
  lists(all).forEach(([owner, key], i) => {
    const [source, name] = from[i];
    owner[key] = [...source[name].slice(0, kept), ...owner[key]].slice(-POINTS_MAX);
  });
  return all;
}

// ---- members ----

function stepsPerSecond() {
  const begin = Math.max(0, points.time.length - 6);
  const elapsed = last(points.time) - points.time[begin];
  return elapsed > 0 ? (last(points.step) - points.step[begin]) / elapsed : 0;
}

// Every worker with how far it is behind the first one, in steps and in seconds of the job's speed.
function judgeWorkers() {
  const front = Math.max(0, ...status.workers.filter(({member}) => member).map(({step}) => step));
  const rate = stepsPerSecond();
  const waitedFor = new Set(status.stall ? status.stall.workers : []);
  return status.workers.map((worker) => {
    const behind = worker.member ? front - worker.step : 0;
    const late = rate > 0 ? behind / rate : 0;
    const isLate = waitedFor.has(worker.index) || (behind > 1 && late > LATE_SECONDS);
    const kind = {member: isLate ? 'change' : 'ok', joining: 'change', gone: 'failure'}[worker.state] || 'idle';
    return {...worker, name: `worker-${worker.index}`, behind: isLate ? behind : 0, late, isLate, kind};
  });
}

function judgeServers() {
  const present = status.servers.map((server) => {
    const isLeaving = server.index >= status.servers_wanted;
    return {...server, name: `server-${server.index}`, kind: isLeaving ? 'change' : 'ok', state: isLeaving ? 'leaving' : 'serving'};
  });
  const known = new Set(status.servers.map(({index}) => index));
  for (let index = 0; index < status.servers_wanted; ++index) {
    if (!known.has(index)) present.push({index, name: `server-${index}`, kind: 'failure', state: 'missing', bytes: 0, version: 0, data: ''});
  }
  return present.sort((a, b) => a.index - b.index);
}

const URGENCY = {failure: 0, change: 1, ok: 2, idle: 3};
const isOver = () => status.phase === 'Succeeded' || status.phase === 'Failed';
const isBatchChanging = () => status.batch > 0 && status.global_batch > 0 && status.batch !== status.global_batch;

function writeMap(id, members) {
  const map = document.getElementById(id);
  const cells = map.children;
  while (cells.length > members.length) map.lastChild.remove();
  while (cells.length < members.length) map.append(document.createElement('i'));
  members.forEach(({name, state, kind}, i) => {
    const label = `${name}: ${state}`;
    if (cells[i].className !== kind) cells[i].className = kind;
    if (cells[i].title !== label) cells[i].title = label;
  });
  const size = members.length > 250 ? 'map crowd' : members.length > 60 ? 'map many' : 'map';
  if (map.className !== size) map.className = size;
  const count = (kind) => members.filter((member) => member.kind === kind).length;
  map.setAttribute('aria-label', `${members.length} in all: ${count('ok')} well, ${count('change')} late or on the way, ${count('failure')} missing, ${count('idle')} done.`);
}

// `cells`: a member to the texts of its row; `numeric` are the indices of those that are numbers.
function writeRows(role, members, cells, numeric) {
  const classes = (j) => [numeric.includes(j) ? 'number' : '', j === 4 ? 'spare' : ''].join(' ').trim();
  const sorted = [...members].sort((a, b) => URGENCY[a.kind] - URGENCY[b.kind] || b.behind - a.behind || a.index - b.index);
  const shown = showsAll[role] ? sorted : sorted.slice(0, ROWS_MAX);
  const body = document.getElementById(role);
  while (body.children.length > shown.length) body.lastChild.remove();
  shown.forEach((member, i) => {
    const texts = cells(member);
    if (!body.children[i]) {
      const row = element('tr', {}, element('th', {scope: 'row'}));
      texts.slice(1).forEach((unused, j) => row.append(element('td', {class: classes(j + 1)})));
      row.children[1].append(element('span', {class: 'dot', 'aria-hidden': 'true'}), element('span'));
      body.append(row);
    }
    const row = body.children[i];
    texts.forEach((value, j) => write(j === 1 ? row.children[1].lastChild : row.children[j], value));
    const dot = `dot ${member.kind}`;
    if (row.children[1].firstChild.className !== dot) row.children[1].firstChild.className = dot;
  });
  const button = document.getElementById(`${role}-all`);
  button.hidden = members.length <= ROWS_MAX;
  write(button, showsAll[role] ? `Show ${ROWS_MAX}` : `Show all ${members.length}`);
  write(`${role}-text`, members.length <= ROWS_MAX || showsAll[role] ? String(members.length)
    : `${ROWS_MAX} of ${members.length}, those with a problem first`);
}

// ---- the parts of the page ----

function writeProblems(workers) {
  const problems = [];
  const add = (kind, what) => what && problems.push([kind, what]);
  if (status.failure) add('failure', `Failed: ${status.failure}`);
  if (status.stalled) add('failure', `Late: ${status.stalled}.`);
  else {
    const late = workers.filter(({isLate}) => isLate).sort((a, b) => b.behind - a.behind);
    const named = late.slice(0, 3).map(({name, behind, late: behindSeconds}) => `${name} is ${integer(behind)} steps (${text(seconds(behindSeconds))}) behind`);
    if (late.length > 3) named.push(`and ${late.length - 3} more`);
    add('change', named.length > 0 && !isOver() && `Late: ${named.join(', ')}.`);
  }
  if (!isOver()) {
    status.culprits.forEach((culprit) => add('change', `Slow: ${culprit.text}.`));
    const missing = status.servers_wanted - status.servers.length;
    if (missing > 0) add('failure', `${missing} of ${status.servers_wanted} servers missing${status.shards_moving ? `, ${integer(status.shards_moving)} shards to place` : ''}.`);
    else if (status.shards_moving > 0) add('change', `${integer(status.shards_moving)} shards are on their way to other servers.`);
    if (status.phase === 'Recovering') add('change', 'A new coordinator collects what the members know.');
    add('change', status.mode_changing && 'The mode is changing.');
    add('change', isBatchChanging() && `The batch is changing to ${integer(status.global_batch)} samples.`);
  }
  add('failure', status.checkpoint.problem && `Checkpoints fail: ${status.checkpoint.problem}`);
  add('failure', status.mode_problem);
  if (problems.length === 0) add('ok', status.phase === 'Starting' ? 'Starting.' : isOver() ? 'The job is over.' : 'No member is late.');
  const list = document.getElementById('problems');
  while (list.children.length > problems.length) list.lastChild.remove();
  problems.forEach(([kind, what], i) => {
    if (!list.children[i]) list.append(element('li'));
    list.children[i].className = `problem ${kind}`;
    write(list.children[i], what);
  });
}

function writeHeader() {
  write('job', status.job);
  document.title = `${status.job} – Pushpull`;
  write('phase', status.phase);
  document.getElementById('phase').className = `badge ${status.phase}`;
  write('mode', status.mode_text);
}

function writeAllFigures(workers, servers) {
  const rate = last(points.samples_per_second);
  writeFigures(document.getElementById('figures'), [
    ['Step', figure(integer(status.step), '')],
    ['Samples / s', figure(rate === null ? '–' : integer(rate), '')],
    ['Sync, median', seconds(status.sync.p50_seconds)],
    ['Sync, 99 %', seconds(status.sync.p99_seconds)],
    ['Loss', figure(status.losses.length > 0 ? lossText(last(status.losses).loss) : '–', '')],
    ...batchFigures(status),
    ['Workers', figure(integer(workers.filter(({member}) => member).length), `of ${integer(status.workers_wanted)}`)],
    ['Servers', figure(integer(status.servers.length), `of ${integer(status.servers_wanted)}`)],
    ['Training', duration(status.seconds)],
  ]);
}

function writeFlow(workers, servers) {
  writeMap('workers-map', workers);
  writeMap('servers-map', servers);
  write('workers-count', `${integer(workers.filter(({member}) => member).length)} contribute`);
  write('servers-count', text(bytes(status.servers.reduce((sum, server) => sum + server.bytes, 0))));
  for (const what of ['pushed', 'pulled', 'replicated']) write(what, text(bytesPerSecond(last(points[`${what}_per_second`]))));
  write('moving', integer(status.shards_moving));
}

function writeCharts() {
  syncChart.set(points);
  write('sync-text', points.time.length > 0 ? syncChart.summary() : '');
  losses.set([status.losses.map(({step}) => step), status.losses.map(({loss}) => loss)]);
  write('loss-text', status.losses.length > 0 ? 'mean over the workers, by step' : 'the program reports none');
  speed.set([points.time, points.samples_per_second]);
}

function writeTables(workers, servers) {
  writeRows('workers', workers, (worker) => [worker.name, worker.isLate ? 'late' : worker.state, integer(worker.step),
    worker.behind > 0 ? integer(worker.behind) : '–', `${text(duration(worker.joined_seconds))} ago`], [2, 3, 4]);
  writeRows('servers', servers, (server) => [server.name, server.state, text(bytes(server.bytes)), integer(server.version), server.data], [2, 3]);
}

function show() {
  const workers = judgeWorkers();
  const servers = judgeServers();
  writeHeader();
  writeProblems(workers);
  writeAllFigures(workers, servers);
  writeFlow(workers, servers);
  writeCharts();
  writeTables(workers, servers);
  const events = JSON.stringify(status.events);
  if (events !== eventsShown) writeEvents(document.getElementById('events'), status.events);
  eventsShown = events;
  write('events-text', status.events.length > 0 ? 'newest first' : 'none so far');
}

for (const role of ['workers', 'servers']) {
  document.getElementById(`${role}-all`).addEventListener('click', () => {
    showsAll[role] = !showsAll[role];
    if (status) show();
  });
}

// ---- asking ----

async function ask(path) {
  const answer = await fetch(path, {signal: AbortSignal.timeout(TIMEOUT_MILLISECONDS)});
  if (!answer.ok) throw new Error(`${path}: ${answer.status}`);
  return answer.json();
}

async function update() {
  const next = await ask('status.json');
  if (status !== null && next.term !== status.term) earlierEvents = status.events;
  next.events = [...earlierEvents, ...next.events];
  status = next;
  if (points === null || !addPoints(status.recent)) points = joinPoints(points, await ask('history.json'));
  show();
  performance.mark('shown');
}

function writeConnection(isLive) {
  const line = document.getElementById('connection');
  line.classList.toggle('lost', !isLive);
  write(line, isLive ? 'live' : status && isOver() ? 'the coordinator has ended' : 'no answer from the coordinator, trying again');
}

async function poll() {
  try {
    await update();
    writeConnection(true);
  } catch (error) {
    writeConnection(false);
  }
  setTimeout(poll, POLL_MILLISECONDS);
}

poll();
