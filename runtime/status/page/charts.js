// SPDX-License-Identifier: Apache-2.0
//
// What the status page and the report of a finished run have in common: how figures are written,
// and the charts, which uPlot draws. A classic script: its names are global, so that a report can
// have it inline.
'use strict';

// In the order of a gradient's path, with what the time goes into.
const PHASES = {
  reduce: 'adding up inside the node',
  encode: 'the codec and cutting into chunks',
  queue: 'waiting in the worker until it is sent',
  wire: 'the way to the server',
  server_queue: 'waiting in the server until a lane takes it',
  wait: 'the server waiting for other workers',
  sum: 'checking and adding',
  optimize: 'the optimizer on the server',
  replicate: 'waiting for followers',
  reply: 'the way back to the worker',
  apply: 'copying into the parameter',
};

const TIME_MIN_SECONDS = 60;

const figure = (value, unit) => ({value, unit});

function digits(value) {
  const places = value >= 100 ? 0 : value >= 10 ? 1 : 2;
  return value.toLocaleString('en', {minimumFractionDigits: places, maximumFractionDigits: places});
}

const integer = (value) => Math.round(value).toLocaleString('en');

function seconds(value) {
  if (value === null || value === undefined) return figure('–', '');
  if (value === 0) return figure('0', 'ms');
  if (value < 1e-3) return figure(digits(value * 1e6), 'µs');
  return value < 1 ? figure(digits(value * 1e3), 'ms') : figure(digits(value), 's');
}

// A longer time, for people.
function duration(value) {
  const whole = Math.floor(value);
  const parts = [[86400, 'd'], [3600, 'h'], [60, 'min']];
  for (const [i, [size, unit]] of parts.entries()) {
    if (whole < size) continue;
    const [next, nextUnit] = parts[i + 1] || [1, 's'];
    return figure(`${Math.floor(whole / size)} ${unit} ${Math.floor(whole % size / next)}`, nextUnit);
  }
  return figure(String(whole), 's');
}

function bytes(value) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let unit = 0;
  while (value >= 1024 && unit + 1 < units.length) {
    value /= 1024;
    ++unit;
  }
  return figure(unit === 0 ? integer(value) : digits(value), units[unit]);
}

function bytesPerSecond(value) {
  if (value === null || value === undefined) return figure('–', '');
  const amount = bytes(value);
  return figure(amount.value, `${amount.unit}/s`);
}

const text = ({value, unit}) => (unit ? `${value} ${unit}` : value);
const lossText = (loss) => (loss === null || loss === undefined ? '–' : loss.toPrecision(4));
const clock = (time) => new Date(time * 1000).toLocaleTimeString('en-GB');
const last = (list) => (list.length > 0 ? list[list.length - 1] : null);

function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

// Only what differs is written: a page that is not touched costs nothing and disturbs no reader.
function write(node, value) {
  const target = typeof node === 'string' ? document.getElementById(node) : node;
  if (target.textContent !== value) target.textContent = value;
}

// `items`: [[name, {value, unit}]].
function writeFigures(list, items) {
  if (list.children.length !== items.length) {
    list.replaceChildren(...items.map(() => element('div', {}, element('dt'), element('dd', {}, element('span'), element('small')))));
  }
  items.forEach(([name, {value, unit}], i) => {
    const [term, detail] = list.children[i].children;
    write(term, name);
    write(detail.children[0], value);
    write(detail.children[1], unit);
  });
}

// The batch where the job divides its samples, the noise scale where it is measured and known.
function batchFigures({batch, noise_scale: noiseScale}) {
  const items = [['Batch', batch], ['Noise scale', noiseScale]];
  return items.filter(([, value]) => value > 0).map(([name, value]) => [name, figure(integer(value), '')]);
}

const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

// Vertical lines where something has happened: `marks()` is [{x, kind}].
function marksPlugin(marks) {
  return {hooks: {draw: (plot) => {
    const {ctx, bbox} = plot;
    ctx.save();
    ctx.lineWidth = Math.round(1.5 * devicePixelRatio);
    for (const {x, kind} of marks()) {
      const at = Math.round(plot.valToPos(x, 'x', true));
      if (!(at >= bbox.left && at <= bbox.left + bbox.width)) continue;
      ctx.strokeStyle = ctx.fillStyle = color(kind === 'failure' ? 'bad' : 'accent');
      ctx.setLineDash(kind === 'failure' ? [] : [4 * devicePixelRatio, 3 * devicePixelRatio]);
      ctx.beginPath();
      ctx.moveTo(at, bbox.top);
      ctx.lineTo(at, bbox.top + bbox.height);
      ctx.stroke();
    }
    ctx.restore();
  }}};
}

// One chart in a box, drawn anew when the box or the colours change. `describe` makes the text for
// those who do not see it.
class Chart {
  // options: isTime (of x), series: [{label, color, isFilled, isDashed}], format (of y), marks,
  // describe, onCursor(index or null).
  constructor(box, options) {
    this.box = box;
    this.options = options;
    this.data = null;
    this.plot = null;
    box.setAttribute('role', 'img');
    box.setAttribute('aria-label', 'No data yet');
    this.empty = element('p', {class: 'empty', 'aria-hidden': 'true'}, 'no data yet');
    box.append(this.empty);
    new ResizeObserver(() => this.resize()).observe(box);
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => this.draw());
  }

  // [x, series...], null where there is no value.
  set(data) {
    this.data = data;
    const isEmpty = data[0].length === 0;
    this.empty.hidden = !isEmpty;
    this.empty.style.display = isEmpty ? '' : 'none';
    if (isEmpty) return;
    this.box.setAttribute('aria-label', this.options.describe(data));
    if (this.plot) this.plot.setData(data);
    else this.draw();
  }

  resize() {
    const {clientWidth: width, clientHeight: height} = this.box;
    if (this.plot && width > 0) this.plot.setSize({width, height});
  }

  draw() {
    if (!this.data || this.data[0].length === 0) return;
    if (this.plot) this.plot.destroy();
    const {isTime, series, format, marks, onCursor} = this.options;
    const grid = {stroke: color('grid'), width: 1};
    const axis = {stroke: color('quiet'), font: `12px ${getComputedStyle(document.body).fontFamily}`, ticks: {show: false}, grid};
    const times = (plot, splits) => {
      const isFine = splits.length > 1 && splits[1] - splits[0] < 60;
      const labels = splits.map((time) => (isFine ? clock(time) : clock(time).slice(0, 5)));
      return labels.map((label, i) => (label === labels[i - 1] ? '' : label));
    };
    this.plot = new uPlot({
      width: this.box.clientWidth,
      height: this.box.clientHeight,
      padding: [8, 18, 0, 0],
      legend: {show: false},
      cursor: {y: false, points: {show: false}, drag: {x: false, y: false}},
      // A page that was just opened does not stretch a second; steps begin at 0.
      scales: {x: {time: isTime, range: (plot, min, max) => (isTime ? [Math.min(min, max - TIME_MIN_SECONDS), max] : [Math.min(0, min), Math.max(1, max)])}, y: {range: this.options.range || ((plot, min, max) => [0, max > 0 ? max * 1.08 : 1])}},
      axes: [
        {...axis, space: 64, size: 26, gap: 6, values: isTime ? times : (plot, splits) => splits.map((split) => (split % 1 ? '' : integer(split)))},
        {...axis, space: 34, size: 62, gap: 6, values: (plot, splits) => splits.map(format)},
      ],
      series: [{}, ...series.map(({label, color: name, isFilled, isDashed}) => ({
        label,
        stroke: color(name),
        fill: isFilled ? color(name) : undefined,
        width: isFilled ? 0.5 : 1.75,
        dash: isDashed ? [5, 4] : undefined,
        spanGaps: true,
        points: {show: (plot) => plot.data[0].length < 3 && !isFilled},
      }))],
      plugins: marks ? [marksPlugin(marks)] : [],
      hooks: {setCursor: onCursor ? [(plot) => onCursor(plot.cursor.idx ?? null)] : []},
    }, this.data, this.box);
  }
}

// Synchronization by phase, stacked, with the whole of a step above, and its legend.
class SyncChart {
  // `x`: 'time' or 'step'; `marks` as for marksPlugin.
  constructor(box, legend, x, marks) {
    this.x = x;
    this.names = Object.keys(PHASES);
    this.points = null;
    this.cursor = null;
    this.legend = legend;
    const stacked = [...this.names].reverse();  // the highest first: the next one is painted over it
    this.chart = new Chart(box, {
      isTime: x === 'time',
      series: [...stacked.map((name) => ({label: name, color: name, isFilled: true})),
        {label: 'whole step', color: 'text', isDashed: true}],
      format: (value) => text(seconds(value)),
      marks,
      describe: () => this.summary(),
      onCursor: (index) => {
        this.cursor = index;
        this.writeLegend();
      },
    });
    for (const name of [...this.names, 'whole step']) {
      const kind = name in PHASES ? name : 'line';
      legend.append(element('li', {title: PHASES[name] || 'from the first gradient to the last parameter'},
        element('span', {class: `swatch ${kind}`}), element('span', {}, name.replace('_', ' ')), element('span', {class: 'value'})));
    }
    for (const [kind, name] of [['change', 'change'], ['failure', 'failure']])
      legend.append(element('li', {}, element('span', {class: `swatch mark ${kind}`}), element('span', {}, name)));
  }

  // `points` as /history.json has them.
  set(points) {
    this.points = points;
    const sums = [];
    let below = points[this.x].map(() => 0);
    for (const name of this.names) {
      below = points.phases[name].map((value, i) => (value === null ? null : below[i] + value));
      sums.unshift(below);
      below = below.map((value) => value ?? 0);
    }
    this.chart.set([points[this.x], ...sums, points.sync_seconds]);
    this.writeLegend();
  }

  writeLegend() {
    if (!this.points) return;
    const at = (list) => (this.cursor === null ? [...list].reverse().find((value) => value !== null) : list[this.cursor]);
    this.names.forEach((name, i) => write(this.legend.children[i].lastChild, text(seconds(at(this.points.phases[name])))));
    write(this.legend.children[this.names.length].lastChild, text(seconds(at(this.points.sync_seconds))));
  }

  // Where the time goes, in a sentence; over the last `count` points.
  summary(count = 15) {
    const mean = (list) => {
      const values = list.slice(-count).filter((value) => value !== null);
      return values.length === 0 ? 0 : values.reduce((sum, value) => sum + value, 0) / values.length;
    };
    const parts = this.names.map((name) => [name, mean(this.points.phases[name])]);
    const whole = parts.reduce((sum, [, value]) => sum + value, 0);
    if (whole === 0) return 'No step is finished yet.';
    const [name, most] = parts.reduce((best, part) => (part[1] > best[1] ? part : best));
    return `Most of it, ${Math.round(100 * most / whole)} %, is ${name.replace('_', ' ')}: ${PHASES[name]}.`;
  }
}

// The range of a loss: not from 0, since what matters is whether it falls.
function lossRange(plot, min, max) {
  const margin = (max - min) * 0.08 || Math.abs(max) * 0.1 || 1;
  return [min >= 0 ? Math.max(0, min - margin) : min - margin, max + margin];
}

function lossChart(box, marks) {
  return new Chart(box, {
    isTime: false,
    series: [{label: 'loss', color: 'accent'}],
    format: (value) => String(Number(value.toPrecision(3))),
    range: lossRange,
    marks,
    describe: ([steps, losses]) => `Loss: ${lossText(losses[0])} at step ${steps[0]}, ${lossText(last(losses))} at step ${last(steps)}.`,
  });
}

function speedChart(box, x, marks) {
  return new Chart(box, {
    isTime: x === 'time',
    series: [{label: 'samples per second', color: 'accent'}],
    format: integer,
    marks,
    describe: ([, values]) => `Samples per second: ${integer(last(values))} now.`,
  });
}

// Newest first.
function writeEvents(list, events) {
  list.replaceChildren(...[...events].reverse().map(({time, step, kind, text: what}) => element('li', {},
    element('time', {datetime: new Date(time * 1000).toISOString(), title: `step ${integer(step)}`}, clock(time)),
    element('span', {class: `dot ${kind}`, title: kind}),
    element('span', {}, ...(kind === 'failure' ? [element('span', {class: 'hidden'}, 'failure: ')] : []), what))));
}

const eventMarks = (events, x) => events.filter(({kind}) => kind !== 'info').map((event) => ({x: event[x], kind: event.kind}));
