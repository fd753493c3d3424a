// SPDX-License-Identifier: Apache-2.0
//
// The report of a finished run, which the page has in its element `report`: the JSON of
// `pushpull run --report`.
'use strict';

const report = JSON.parse(document.getElementById('report').textContent);
const events = report.events;
const marks = () => eventMarks(events, 'step');

function writeOverview() {
  write('job', report.job);
  document.title = `${report.job} – Pushpull report`;
  write('phase', report.phase);
  document.getElementById('phase').className = `badge ${report.phase}`;
  const end = last(report.history.time);
  write('when', end === null ? '' : `ended ${new Date(end * 1000).toLocaleString('en-GB')}`);
  document.getElementById('failure').hidden = report.failure === '';
  write('failure', report.failure);
  const results = Object.entries(report.final).filter(([, value]) => value !== null);
  writeFigures(document.getElementById('figures'), [
    ['Steps', figure(integer(report.steps), '')],
    ['Training', duration(report.training_seconds)],
    ['Samples / s', figure(integer(report.throughput.samples_per_second), '')],
    ...batchFigures(report),
    ['Sync, median', seconds(report.sync.p50_seconds)],
    ['Sync, 99 %', seconds(report.sync.p99_seconds)],
    ['Workers', figure(integer(report.workers), '')],
    ['Servers', figure(integer(report.servers), '')],
    ['Restarts', figure(integer(report.restarts), '')],
    ['Pushed', bytes(report.bytes.pushed)],
    ['Replicated', bytes(report.bytes.replicated)],
    ...results.map(([name, value]) => [`Final ${name}`, figure(lossText(value), '')]),
  ]);
}

function writeResizes() {
  const body = document.getElementById('resizes');
  for (const resize of report.resizes) {
    const cells = [integer(resize.step), resize.settled ? text(seconds(resize.seconds)) : 'not done',
      text(seconds(resize.pause_seconds)), text(bytes(resize.moved_bytes))];
    body.append(element('tr', {}, element('th', {scope: 'row'}, `${resize.from} to ${resize.to}`),
      ...cells.map((cell) => element('td', {class: 'number'}, cell))));
  }
  write('resizes-text', report.resizes.length > 0 ? '' : 'none');
}

writeOverview();
const syncChart = new SyncChart(document.getElementById('sync-chart'), document.getElementById('sync-legend'), 'step', marks);
syncChart.set(report.history);
write('sync-text', syncChart.summary(report.history.step.length));
lossChart(document.getElementById('loss-chart'), marks).set([report.losses.map(({step}) => step), report.losses.map(({loss}) => loss)]);
speedChart(document.getElementById('speed-chart'), 'step', marks).set([report.history.step, report.history.samples_per_second]);
writeEvents(document.getElementById('events'), events);
if (events.length === 0) write('events-text', 'none');
writeResizes();
