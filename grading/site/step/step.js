'use strict';
const element = id => document.getElementById(id);
// Class of memory -> its color, from the bottom of the curve up.
const COLORS = {shards: 'shards', optimizer_state: 'state', sharded_gradients: 'sharded-gradients',
                gathered: 'all-gather', gradients: 'reduce-scatter', communication: 'staging'};
const ORDER = ['shards', 'gathered', 'gradients', 'sharded_gradients', 'optimizer_state', 'communication'];
const NO_UNITS = s => s.strategy === 'ddp';
// DDP gathers nothing. There the class `gathered` is the parameters with which the rank computes, and `shards`
// their fp32 copies, which exist only if those have 16 bits.
const isDdp = () => settings.strategy === 'ddp', hasCopies = () => isDdp() && settings.param_dtype !== 'fp32';
const colorOf = name => name === 'gathered' && isDdp() ? hasCopies() ? 'other' : 'shards' : COLORS[name];
function classText(name) {
  if (isDdp() && name === 'gathered') return hasCopies() ? '16-bit parameters' : 'parameters';
  return hasCopies() && name === 'shards' ? 'fp32 parameters' : name.replace('_', ' ');
}

// The sliders, and where they start. An address may also have other numbers from the first value to the last.
const FIELDS = [
  {name: 'world', label: 'ranks', values: [1, 2, 3, 4, 8, 16, 32, 64], start: 4},
  {name: 'layers', label: 'layers', values: [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48], start: 4},
  {name: 'width', label: 'width (d_model)', values: [64, 128, 256, 512, 1024, 1600, 2048, 4096], of: 64, start: 256},
  {name: 'vocabulary', label: 'vocabulary', values: [1000, 8000, 32000, 50304], start: 1000},
  {name: 'rows', label: 'rows of each rank', values: [1, 2, 4, 8, 16, 32, 64], start: 8},
  {name: 'strategy', label: 'strategy', words: ['full', 'hybrid', 'ddp'], start: 'full'},
  {name: 'shard_size', label: 'ranks of a replica', values: [1, 2, 4, 8, 16, 32], start: 2,
   idle: s => s.strategy !== 'hybrid'},
  {name: 'wrap', label: 'units', words: ['block', 'auto', 'none'], start: 'block', idle: NO_UNITS},
  {name: 'limit', label: 'limit (1: no prefetch)', values: [1, 2, 3, 4, 8, 64], start: 2, idle: NO_UNITS},
  {name: 'reshard', label: 'reshard after forward', words: ['on', 'off'], start: 'on', idle: NO_UNITS},
  {name: 'param_dtype', label: 'parameters are used in', words: ['fp32', 'bf16'], start: 'fp32'},
  {name: 'reduce_dtype', label: 'gradients sent in', words: ['fp32', 'bf16'], start: 'fp32'},
  {name: 'recompute', label: 'recompute each n-th block', values: [0, 1, 2, 3, 4], start: 0,
   text: n => n || 'none'},
  {name: 'latency', label: 'latency of a hop', values: [0, 1, 5, 20, 50, 200, 1000, 4000], start: 200,
   text: us => us < 1000 ? us + ' µs' : us / 1000 + ' ms'},
  {name: 'bandwidth', label: 'bandwidth of the link', values: [100, 200, 1000, 5000, 25000, 100000, 300000],
   start: 1000, text: mb => mb < 1000 ? mb + ' MB/s' : mb / 1000 + ' GB/s'},
  {name: 'speed', label: 'a rank computes', values: [10, 100, 1000, 10000, 100000, 300000], start: 100,
   text: g => g < 1000 ? g + ' Gflop/s' : g / 1000 + ' Tflop/s'},
];
const fieldOf = name => FIELDS.find(field => field.name === name);

let settings, run, at = 0, stop = -1;

// Each throws one line that names the setting: an exception in C++ would end the program.
function checkNumber(name, text, least, most, of = 1) {
  if (/^\d{1,9}$/.test(text) && text >= least && text <= most && text % of === 0) return;
  const divided = of > 1 ? ` that ${of} divides` : '';
  throw new Error(`${name} is ${text}: takes a number from ${least} to ${most}${divided}`);
}
function checkShards(s) {
  if (s.strategy === 'hybrid' && s.world % s.shard_size)
    throw new Error(`shard_size is ${s.shard_size}: does not divide world, ${s.world}`);
}
function settingsOf(changes) {
  const read = Object.fromEntries(FIELDS.map(field => [field.name, field.start]));
  for (const [name, value] of Object.entries(changes)) {
    const field = fieldOf(name);
    if (!field) throw new Error(`${name}: no such setting; there are ${Object.keys(read).join(', ')}, stop, at`);
    if (field.words && !field.words.includes(value))
      throw new Error(`${name} is ${value}: takes ${field.words.join(', ')}`);
    if (field.values) checkNumber(name, String(value), field.values[0], field.values.at(-1), field.of);
    read[name] = field.words ? value : Number(value);
  }
  checkShards(read);
  return read;
}

let predictor;
async function load() {
  const packed = Uint8Array.from(atob(element('wasm').textContent), c => c.charCodeAt(0));
  const unpacked = new Blob([packed]).stream().pipeThrough(new DecompressionStream('gzip'));
  const bytes = await new Response(unpacked).arrayBuffer();
  const nothing = new Proxy({}, {get: () => () => 0});  // it has no files, no clock and no environment
  predictor = (await WebAssembly.instantiate(bytes, {wasi_snapshot_preview1: nothing})).instance.exports;
  predictor._initialize();
}

// The lines of step.cpp.
function described(s) {
  const line = [s.world, s.layers, s.width, s.vocabulary, s.rows, s.wrap, s.strategy === 'ddp' ? 'ddp' : 'fsdp',
                s.strategy === 'hybrid' ? s.shard_size : s.world, s.limit, s.reshard === 'on' ? 1 : 0,
                s.param_dtype, s.reduce_dtype, s.recompute, s.latency * 1000, s.bandwidth, s.speed].join(' ');
  const {memory, line_of_settings, described} = predictor;
  new Uint8Array(memory.buffer, line_of_settings()).set(new TextEncoder().encode(line + '\0'));
  const begin = described(), bytes = new Uint8Array(memory.buffer);
  return new TextDecoder().decode(bytes.subarray(begin, bytes.indexOf(0, begin))).trimEnd().split('\n');
}

function runOf(lines) {
  const read = {units: [], received: {}, actions: []};
  const take = {
    command: words => read.command = words.join(' '),
    unit: ([name]) => read.units.push(name),
    peak: ([bytes, phase, unit]) => read.peak = {bytes: +bytes, phase, unit: read.units[unit]},
    received: ([what, bytes]) => read.received[what] = +bytes,
    time: ([computing, waiting]) => Object.assign(read, {computing: +computing, waiting: +waiting}),
    action: ([begin, end, ...rest]) => read.actions.push({
      begin: +begin, end: +end, index: read.actions.length, kind: rest[7],
      live: Object.fromEntries(ORDER.map((name, i) => [name, +rest[i]])), ...ACTIONS[rest[7]](rest.slice(8), read)}),
  };
  for (const line of lines) {
    const [what, ...words] = line.split(' ');
    if (take[what]) take[what](words);
  }
  read.moves = onePerClass(movesOf(read.actions));
  return read;
}

// What the words of an action say. `about` is a class of memory or a collective.
const ACTIONS = {
  enter: ([phase]) => ({about: '', enters: phase}),
  allocate: ([unit, about, bytes], {units}) => ({unit: units[unit], about, bytes: +bytes}),
  compute: ([unit], {units}) => ({unit: units[unit], about: ''}),
  issue: ([unit, about, received, ranks, stride, label], {units}) =>
    ({unit: units[unit], about, received: +received, ranks: +ranks, stride: +stride, label}),
  wait: ([issue], {actions}) => {
    const {unit, about, ranks, stride, label} = actions[issue];
    return {issue, unit, about, ranks, stride, label};
  },
};

// The actions to go through. Those that change nothing are left out. Neighbours that say the same are one.
function movesOf(actions) {
  const moves = [], waited = new Set();
  let phase = 'init';
  for (const action of actions) {
    phase = action.phase = action.enters || phase;
    const {kind, about, bytes, unit} = action, last = moves.at(-1) || {};
    if (bytes === 0 || action.ranks === 1 || waited.has(action.issue)) continue;
    if (kind === 'compute' && action.end === action.begin) continue;
    if (kind === 'wait') waited.add(action.issue);
    const same = last.kind === kind && last.about === about && last.phase === phase &&
        (last.unit === unit || phase === 'init');
    if (!same || !['compute', 'allocate'].includes(kind) || last.bytes > 0 !== bytes > 0) {
      moves.push({...action});
      continue;
    }
    if (bytes) last.bytes += bytes;
    Object.assign(last, {end: action.end, live: action.live, index: action.index});
  }
  moves.forEach((move, i) => {
    const {about, unit, bytes} = move, before = moves[i - 1] || {}, after = moves[i + 1] || {};
    const flat = about === 'gradients' && unit;
    move.isFlat = flat && bytes > 0 && after.about === about && after.bytes < 0;
    move.isMoved = flat && before.isFlat;
    move.name = [move.phase, move.kind, about, unit, bytes < 0 && (move.isMoved ? 'moved' : 'freed')]
        .filter(Boolean).join(' ');
  });
  return moves;
}

// Before the step, the classes may take turns to grow, unit by unit: they get one action each.
function onePerClass(moves) {
  const begin = moves.filter(move => move.phase === 'init'), live = Object.fromEntries(ORDER.map(name => [name, 0]));
  const classes = [...new Set(begin.map(move => move.about))].map(about => {
    const same = begin.filter(move => move.about === about);
    live[about] = same.reduce((sum, move) => sum + move.bytes, 0);
    return {...same.at(-1), bytes: live[about], live: {...live}};
  });
  return [...classes, ...moves.slice(begin.length)];
}

function inUnits(value, units) {
  const [power, unit] = units.find(([power]) => value >= power) || units.at(-1);
  const digits = power === 1 || value >= 100 * power ? 0 : value >= 10 * power ? 1 : 2;
  return (value / power).toFixed(digits) + ' ' + unit;
}
const bytesText = bytes => inUnits(bytes, [[1e9, 'GB'], [1e6, 'MB'], [1e3, 'kB'], [1, 'B']]);
const timeText = ns => inUnits(ns, [[1e9, 's'], [1e6, 'ms'], [1e3, 'µs']]);

const called = unit => unit === 'root' || !unit ? settings.strategy === 'ddp' ? 'the model' : 'the root' : unit;
function collective({about, unit, stride, label}) {
  if (label !== '-') return 'all-reduce of the loss';
  const whose = unit ? called(unit) : 'a bucket of gradients';
  return `${about.replace('_', '-')} of ${whose}${stride > 1 ? ' between replicas' : ''}`;
}

function sentence(move) {
  const ddp = settings.strategy === 'ddp', spent = timeText(move.end - move.begin);
  const unit = called(move.unit), amount = bytesText(Math.abs(move.bytes || 0));
  const Unit = unit.replace('the', 'The');
  const others = `${move.ranks - 1} other rank${move.ranks > 2 ? 's' : ''}`;
  const freed = move.bytes < 0;
  switch (move.kind) {
    case 'enter':
      return {forward: 'Forward begins.', backward: 'Backward begins.',
              optimizer: 'The optimizer updates what this rank owns: nothing is sent.'}[move.phase];
    case 'compute':
      return `${Unit} computes its ${move.phase} for ${spent}.`;
    case 'issue':
      return `The ${collective(move)} is issued: ${bytesText(move.received)} will come from ${others}.`;
    case 'wait':
      return move.end > move.begin ? `The rank waits ${spent} for the ${collective(move)}.`
                                   : `The ${collective(move)} is done already: no wait.`;
  }
  switch (move.about) {
    case 'shards':
      return `Before the step, the rank holds ${ddp ? 'all parameters in fp32' : 'its shards'}: ${amount}.`;
    case 'optimizer_state':
      return `Before the step, it holds the optimizer’s state of them: ${amount}.`;
    case 'sharded_gradients':
      return `The sharded gradient of ${unit} ${freed ? 'is freed' : 'gets memory'}: ${amount}.`;
    case 'gathered':
      if (ddp) return `Before the step, the rank holds all parameters${hasCopies() ? ', rounded to 16 bits' : ''}: ` +
          `${amount}.`;
      return freed ? `${Unit} is resharded: ${amount} free.` : `${Unit} gets memory to be unsharded: ${amount}.`;
    case 'gradients':
      if (ddp) return `Buckets for all gradients ${freed ? 'are freed' : 'get memory'}: ${amount}.`;
      if (move.isFlat) return `A flat gradient of ${unit} gets memory: ${amount}.`;
      if (move.isMoved) return `The gradients of ${unit} are moved into it: ${amount} free.`;
      return freed ? `The flat gradient of ${unit} is freed: ${amount}.`
                   : `The gradients of ${unit} are computed: ${amount}.`;
  }
  return `Buffers of the transport are ${freed ? 'freed' : 'allocated'}: ${amount}.`;
}

function draw(parent, tag, attributes, color) {
  const node = parent.appendChild(document.createElementNS('http://www.w3.org/2000/svg', tag));
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  if (color) node.style.fill = `var(--${color})`;
  return node;
}
function cleared(id, width, height) {
  const svg = element(id);
  svg.replaceChildren();
  svg.setAttribute('viewBox', `0 0 ${width} ${height}`);
  return svg;
}
const total = live => ORDER.reduce((sum, name) => sum + live[name], 0);
const lastTime = () => Math.max(1, run.computing + run.waiting, ...run.moves.map(move => move.end));

function drawCurve() {
  const svg = cleared('curve', run.moves.length, 100), base = run.moves.map(() => 0);
  const most = Math.max(1, ...run.moves.map(move => total(move.live)));
  element('top').textContent = `up to ${bytesText(most)}`;
  for (const name of Object.keys(COLORS)) {
    const level = i => (100 - base[i] / most * 90).toFixed(2);
    let path = 'M0 100', back = '';
    run.moves.forEach((move, i) => {
      back = `L${i + 1} ${level(i)}L${i} ${level(i)}${back}`;
      base[i] += move.live[name];
      path += `L${i} ${level(i)}L${i + 1} ${level(i)}`;
    });
    draw(svg, 'path', {d: path + back}, colorOf(name));
  }
}

function drawLanes() {
  const end = lastTime(), svg = cleared('lanes', 1000, 60), x = time => time / end * 1000;
  for (const move of run.moves) {
    if (move.end === move.begin || !['compute', 'issue'].includes(move.kind)) continue;
    const link = {all_gather: 'all-gather', reduce_scatter: 'reduce-scatter'}[move.about] || 'other';
    const place = {x: x(move.begin), width: x(move.end - move.begin), y: move.about ? 34 : 4, height: 22};
    move.box = draw(svg, 'rect', place, move.about ? link : move.phase);
  }
  element('axis').textContent = `Above: computing. Below: the link. The width is ${timeText(end)}.`;
}

// By unit: what is allocated, and the collective that has not been waited for, after the action shown.
function held() {
  const units = Object.fromEntries(run.units.map(unit => [unit, {gathered: 0, gradients: 0, sharded_gradients: 0}]));
  for (const {kind, unit, about, bytes} of run.actions.slice(0, run.moves[at].index + 1)) {
    if (!unit) continue;
    if (kind === 'allocate') units[unit][about] += bytes;
    if (about === 'gathered' && bytes > 0) units[unit].coming = 'all_gather';
    if (kind === 'issue') units[unit].coming = about;
    if (kind === 'wait') units[unit].coming = '';
  }
  return units;
}

function drawUnits() {
  const wide = Math.max(300, element('units').clientWidth), svg = cleared('units', wide, 126);
  const left = 78, room = (wide - left) / run.units.length, width = Math.max(room - Math.min(6, room / 4), 1);
  const ddp = settings.strategy === 'ddp', units = held(), {live, unit: current} = run.moves[at];
  const shard = 26 / (settings.strategy === 'hybrid' ? settings.shard_size : ddp ? 1 : settings.world);
  ['parameters', 'gradients', 'state'].forEach((name, row) =>
    draw(svg, 'text', {x: 0, y: 35 + row * 34}).textContent = name);
  run.units.forEach((unit, i) => {
    const x = left + i * room, {gathered, gradients, sharded_gradients, coming} = units[unit];
    const every = Math.ceil(44 / room), name = unit.replace('layers.', '').slice(0, room * every / 7);
    if (i % every === 0) draw(svg, 'text', {x, y: 12}).textContent = name;
    const rows = [['shards', ddp ? 'shards' : 'all-gather', !ddp, gathered || ddp, coming === 'all_gather'],
                  ['sharded-gradients', 'reduce-scatter', sharded_gradients, gradients || ddp && live.gradients,
                   coming && coming !== 'all_gather'],
                  ['state', '', true]];
    rows.forEach(([dark, light, own, whole, moves], row) => {
      const y = 18 + row * 34, height = Math.max(shard, 3);
      if (whole) draw(svg, 'rect', {x, y, width, height: 26, opacity: moves ? .4 : 1}, light);
      if (own) draw(svg, 'rect', {x, y: y + 26 - height, width, height}, dark);
      draw(svg, 'rect', {x, y, width, height: 26, class: unit === current ? 'frame current' : 'frame'});
    });
  });
}

function showAction() {
  const move = run.moves[at], phase = move.phase === 'init' ? 'before the step' : move.phase;
  element('place').textContent = `action ${at + 1} of ${run.moves.length}, ${phase}`;
  element('sentence').textContent = sentence(move);
  for (const old of document.querySelectorAll('.cursor')) old.remove();
  for (const old of document.querySelectorAll('#lanes .current')) old.classList.remove('current');
  if (move.box) move.box.classList.add('current');
  const time = (move.kind === 'issue' ? move.begin : move.end) / lastTime() * 1000;
  draw(element('curve'), 'path', {d: `M${at + .5} 0V100`, class: 'cursor'});
  draw(element('lanes'), 'path', {d: `M${time} 0V60`, class: 'cursor'});
  drawUnits();
  const classes = Object.keys(COLORS).reverse().filter(name => !(name === 'shards' && isDdp() && !hasCopies()))
      .map(name => `<li><i style="background:var(--${colorOf(name)})"></i>${classText(name)} ` +
           `${bytesText(move.live[name])}</li>`);
  element('classes').innerHTML = classes.join('') + `<li><b>all ${bytesText(total(move.live))}</b></li>`;
  element('first').disabled = element('previous').disabled = at === 0;
  element('last').disabled = element('next').disabled = at === run.moves.length - 1;
}

function showNumbers() {
  const {peak, received, computing, waiting} = run;
  const sum = Object.values(received).reduce((a, b) => a + b, 0);
  const nameOf = what => what === 'metrics' ? 'loss' : what.replace('_', '-');
  const parts = Object.entries(received).map(([what, bytes]) => `${nameOf(what)} ${bytesText(bytes)}`);
  const where = peak.phase === 'init' ? 'before the step' : `in ${peak.phase}${peak.unit ? ' of ' + peak.unit : ''}`;
  const unsharded = phase => bytesText(Math.max(
      ...run.actions.filter(action => action.phase === phase).map(action => action.live.gathered)));
  const copies = hasCopies() ? 'in 16 bits, and again in fp32' : 'all of them, on every rank';
  const whole = isDdp() ? ['parameters', unsharded('forward'), copies]
      : ['unsharded at most', unsharded('forward'), `in forward, ${unsharded('backward')} in backward`];
  const all = [['most bytes alive', bytesText(peak.bytes), where], whole,
               ['received in a step', bytesText(sum), parts.join(', ')],
               ['time of a step', (isDdp() ? 'about ' : '') + timeText(computing + waiting),
                `computing ${timeText(computing)}, waiting ${timeText(waiting)}`]];
  element('numbers').innerHTML = all.map(([name, number, more]) =>
    `<div><dt>${name}</dt><dd><b>${number}</b>${more}</dd></div>`).join('');
  element('command').innerHTML = shownCommand(run.command);
  element('about').textContent = !isDdp() ? '' :
      ' It sends a bucket as soon as the last gradient in it is complete; this page knows only when the gradients ' +
      'of a block are complete, so its time is a little longer.';
  element('strip').textContent = isDdp() ? 'Every rank holds every unit whole.' :
      'The strip: its own shard. Filled: the unit while it is unsharded; paler: its memory while it is on the link.';
}

// Lines break before an option or after a comma, and never inside of a word.
const shownCommand = command => command.split(' ').map(word =>
  word.split(/(?<=,)/).map(part => `<span>${part}</span>`).join('<wbr>')).join(' ');

function copyCommand() {
  const selection = getSelection();
  selection.selectAllChildren(element('command'));
  element('copy').textContent = document.execCommand('copy') ? 'copied' : 'press Ctrl+C';
  setTimeout(() => element('copy').textContent = 'copy', 2000);
}

function show(changed) {
  settings = changed;
  run = runOf(described(settings));
  element('wrong').textContent = '';
  for (const {name, words, values, text, idle} of FIELDS) {
    const value = settings[name], input = element(name), said = text ? text(value) : value;
    input.value = words ? words.indexOf(value) : values.findIndex(one => one >= value);
    input.setAttribute('aria-valuetext', input.previousElementSibling.textContent = said);
    input.parentNode.classList.toggle('idle', Boolean(idle && idle(settings)));
  }
  element('stop').selectedIndex = stop + 1;
  element('story').textContent = stop < 0 ? '' : STOPS[stop][3];
  showNumbers();
  drawCurve();
  drawLanes();
}

function go(to) {
  at = Math.max(0, Math.min(to, run.moves.length - 1));
  showAction();
  const changed = FIELDS.filter(({name, start}) => settings[name] !== start);
  const parts = stop >= 0 ? [`stop=${stop + 1}`] : changed.map(({name}) => `${name}=${settings[name]}`);
  if (stop < 0 || actionOf(stop) !== at) parts.push(`at=${at + 1}`);
  history.replaceState(null, '', '#' + parts.join('&'));
}

const actionOf = number => run.moves.findIndex(move => move.name === STOPS[number][2]);
function goToStop(number) {
  stop = Math.max(0, Math.min(number, STOPS.length - 1));
  show(settingsOf({...BASE, ...STOPS[stop][1]}));
  if (actionOf(stop) < 0) throw new Error(`stop ${stop + 1}: no action '${STOPS[stop][2]}'`);
  go(actionOf(stop));
}

// What is wrong is said, and the page stays as it is.
function attempt(action) {
  try {
    action();
  } catch (error) {
    if (!run) show(settingsOf({})), go(0);
    element('wrong').textContent = error.message;
  }
}

function change(name, value) {
  const wanted = {...settings, [name]: value};
  const fitting = fieldOf('shard_size').values.filter(size => wanted.world % size === 0);
  if (name !== 'shard_size' && !fitting.includes(wanted.shard_size)) wanted.shard_size = fitting.at(-1);
  checkShards(wanted);
  stop = -1;
  show(wanted);
  go(at);
}

function readAddress() {
  const {at: place, stop: number, ...others} = Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
  if (number !== undefined) checkNumber('stop', number, 1, STOPS.length);
  if (place !== undefined) checkNumber('at', place, 1, 1e9);
  if (number) return goToStop(number - 1), place && go(place - 1);
  const read = settingsOf(others);
  stop = -1;
  show(read);
  go((place || 1) - 1);
}

function listen() {
  for (const {name, label, values, words} of FIELDS) {
    const line = element('settings').appendChild(document.createElement('label'));
    line.innerHTML = `<span>${label}</span><output></output>` +
        `<input type="range" id="${name}" min="0" max="${(words || values).length - 1}">`;
    element(name).oninput = event => attempt(() => change(name, (words || values)[event.target.value]));
  }
  element('stop').add(new Option('seventeen stops of a step'));
  STOPS.forEach(([title], i) => element('stop').add(new Option(`${i + 1}. ${title}`)));
  element('stop').onchange = event => event.target.selectedIndex && goToStop(event.target.selectedIndex - 1);
  const actions = {before: () => goToStop(stop - 1), after: () => goToStop(stop + 1), first: () => go(0),
                   previous: () => go(at - 1), next: () => go(at + 1), last: () => go(Infinity)};
  for (const [id, action] of Object.entries(actions)) element(id).onclick = action;
  const keys = {ArrowLeft: 'previous', ArrowRight: 'next', Home: 'first', End: 'last', '[': 'before', ']': 'after'};
  document.addEventListener('keydown', event => {
    const busy = ['SELECT', 'INPUT'].includes(event.target.tagName) || element('walk').hidden;
    if (busy || event.ctrlKey || event.metaKey || event.altKey || !keys[event.key]) return;
    event.preventDefault();
    actions[keys[event.key]]();
  });
  element('curve').onclick = event =>
    go(Math.floor(event.offsetX / event.currentTarget.clientWidth * run.moves.length));
  new ResizeObserver(() => run && drawUnits()).observe(element('units'));
  addEventListener('hashchange', () => attempt(readAddress));
  element('copy').onclick = copyCommand;
  const hide = hidden => element('hidden').hidden = !(element('walk').hidden = hidden);
  const isHidden = element('walk').dataset.students !== '';
  hide(isHidden);
  element('whole').hidden = isHidden;  // a student's copy has no ./fsdp plan
  element('show').onclick = () => {
    hide(false);
    element('next').focus();
  };
}

listen();
load().then(() => attempt(readAddress));
