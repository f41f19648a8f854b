// Reads the run from the page's data, and makes the views of it that can be chosen.
'use strict';
const data = JSON.parse(document.getElementById('data').textContent);
const element = id => document.getElementById(id);
const SHOWN_CLASSES = ['shards', 'optimizer_state', 'sharded_gradients', 'gathered', 'gradients',
                       'communication', 'other'];  // from the bottom up: first the classes that stay
const CLASS_COLORS = {shards: 'shards', optimizer_state: 'state', gathered: 'all-gather',
                      sharded_gradients: 'sharded-gradients', gradients: 'reduce-scatter',
                      communication: 'staging', other: 'rest'};
// On a narrow page the labels of the lanes lie above them, so the gaps are wider.
const narrow = matchMedia('(max-width: 600px)');
const LANE = {compute: 26, flight: 13, memory: data.ranks.length > 4 ? 46 : 64,
              get top() { return narrow.matches ? 22 : 10; },
              get gap() { return narrow.matches ? 26 : 7; }};

// Times are in ns. A span that did not end has `open` set, and is drawn to the end of the data.
let lastTime = 1;
const ranks = data.ranks.map((rank, number) => {
  const events = rank.events.map(([kind, operation, name, begin, length, sequence, bytes, lane]) => {
    lastTime = Math.max(lastTime, begin + Math.max(length, 0));
    return {rank: number, kind: data.kinds[kind], operation: data.operations[operation],
            name: data.names[name], begin, end: begin + length, open: length < 0, sequence, bytes,
            lane};
  });
  return {number, events, live: rank.live,
          flightLanes: 1 + events.reduce((most, event) => Math.max(most, event.lane), 0)};
});
lastTime *= 1.002;
for (const rank of ranks)
  for (const event of rank.events)
    if (event.open) event.end = lastTime;
for (const rank of ranks) {
  rank.waits = rank.events.filter(event => event.kind === 'wait');
  rank.lastSeen = rank.events.reduce((m, e) => Math.max(m, e.open ? e.begin : e.end), 0);
  const inner = (a, b) => b.kind !== 'flight' && b.begin >= a.begin && b !== a;
  const open = rank.events.filter(event => event.open);  // flights and the innermost span are marked
  rank.marked = open.filter(a => a.kind === 'flight' || !open.some(b => inner(a, b)));
}
const highest = Math.max(1, ...ranks.map(rank => rank.live.reduce((m, l) => Math.max(m, l[1]), 0)));
const classIndex = Object.fromEntries(data.classes.map((name, i) => [name, i + 2]));

// The views to choose from: the whole run, the time before the first step, and each step.
const steps = new Map();
for (const rank of ranks)
  for (const event of rank.events)
    if (event.kind === 'step') {
      const step = steps.get(event.sequence) || {begin: Infinity, end: 0};
      steps.set(event.sequence, {begin: Math.min(step.begin, event.begin),
                                 end: Math.max(step.end, event.end)});
    }
const choices = [{label: 'whole run', begin: 0, end: lastTime}];
const numbers = [...steps.keys()].sort((a, b) => a - b);
if (numbers.length > 0 && numbers[0] === 0 && steps.get(0).begin > 0)
  choices.push({label: 'before step 0', begin: 0, end: steps.get(0).begin});
for (const number of numbers) choices.push({label: 'step ' + number, ...steps.get(number)});
let chosen = choices.length - 1;
let view = {begin: 0, end: lastTime};
let hovered = null;

function time(ns) {
  const size = Math.abs(ns);
  if (size < 1e3) return ns.toFixed(0) + ' ns';
  if (size < 1e6) return (ns / 1e3).toFixed(1) + ' µs';
  if (size < 1e9) return (ns / 1e6).toFixed(size < 1e7 ? 3 : 2) + ' ms';
  return (ns / 1e9).toFixed(3) + ' s';
}
const grouped = bytes => bytes.toLocaleString('en-US');
function megabytes(bytes) {
  if (bytes >= 1e9) return (bytes / 1e9).toFixed(2) + ' GB';
  if (bytes >= 1e6) return (bytes / 1e6).toFixed(1) + ' MB';
  return bytes >= 1e4 ? (bytes / 1e3).toFixed(1) + ' kB' : grouped(bytes) + ' B';
}
const escape = text => text.replace(/[&<>]/g, c => '&#' + c.charCodeAt(0) + ';');
