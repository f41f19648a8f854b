// Draws the parts of the page, and the lanes of each rank.
'use strict';
function colorOf(event) {
  if (event.kind === 'flight' || event.kind === 'issue') {
    if (event.operation === 'all_gather') return css['all-gather'];
    return event.operation === 'reduce_scatter' ? css['reduce-scatter'] : css.other;
  }
  return {forward: css.forward, backward: css.backward, optimizer: css.optimizer,
          free: css['all-gather']}[event.kind];
}
let css = {};
function readColors() {
  const style = getComputedStyle(main);
  css = {};
  for (const name of ['panel', 'ink', 'soft', 'line', 'forward', 'backward', 'optimizer', 'all-gather',
                      'reduce-scatter', 'other', 'shards', 'state', 'sharded-gradients', 'staging',
                      'rest', 'wait', 'veil', 'on-color', 'on-light', 'alarm'])
    css[name] = style.getPropertyValue('--' + name).trim();
}

// Makes the parts of the page.
const main = document.querySelector('main');
function addRow(className) {
  const row = document.createElement('div');
  row.className = 'row ' + className;
  row.innerHTML = '<div class="side"></div><div class="lanes"><canvas></canvas><div></div></div>';
  main.append(row);
  const [canvas, lanes] = row.lastChild.children;
  return {side: row.firstChild, canvas, lanes};
}
const axis = addRow('axis');
for (const rank of ranks) {
  const height = () => LANE.top + LANE.compute + LANE.gap + rank.flightLanes * LANE.flight + LANE.gap +
      LANE.memory + 8;
  Object.assign(rank, addRow('rank'));
  Object.defineProperty(rank, 'height', {get: height});
}
for (const rank of ranks)
  rank.canvas.setAttribute('aria-label', `rank ${rank.number}: computation, communication, live bytes`);

function fillLegend() {
  const swatch = (color, label) => `<span><i style="background:var(--${color})"></i>${label}</span>`;
  const hatch = 'repeating-linear-gradient(135deg,var(--wait) 0 1.5px,transparent 1.5px 4px)';
  element('legend').innerHTML =
      '<div>' + swatch('forward', 'forward') + swatch('backward', 'backward') +
      swatch('optimizer', 'optimizer') +
      '<span><i style="background:var(--forward);opacity:.3"></i>the root outside its layers</span>' +
      `<span><i style="background:${hatch}"></i>waits</span></div>` +
      '<div>' + swatch('all-gather', 'all-gather, gathered bytes') +
      swatch('reduce-scatter', 'reduce-scatter, gradients') + swatch('other', 'other collectives') +
      '<span>▴ issued</span><span>▾ freed</span>' +
      '</div><div>' + swatch('shards', 'shards') + swatch('state', 'optimizer state') +
      swatch('sharded-gradients', 'sharded gradients') +
      (ranks.some(r => r.live.some(l => l[classIndex.communication] > 1e4)) ?
           swatch('staging', 'staging') : '') +
      swatch('rest', 'activations and other') + '</div>';
}

function prepare(canvas, height) {
  const ratio = window.devicePixelRatio || 1, width = canvas.clientWidth;
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    canvas.style.height = height + 'px';
  }
  const g = canvas.getContext('2d');
  g.setTransform(ratio, 0, 0, ratio, 0, 0);
  g.clearRect(0, 0, width, height);
  g.font = '11px system-ui, -apple-system, "Segoe UI", "Helvetica Neue", Arial, sans-serif';
  g.textBaseline = 'middle';
  return {g, width, x: t => (t - view.begin) / (view.end - view.begin) * width};
}

function ticks(width) {
  const wanted = (view.end - view.begin) / Math.max(2, width / 110);
  const power = Math.pow(10, Math.floor(Math.log10(wanted)));
  const step = [1, 2, 5, 10].map(m => m * power).find(s => s >= wanted);
  const origin = choices[chosen].begin, result = [];
  for (let t = origin + Math.ceil((view.begin - origin) / step) * step; t <= view.end; t += step)
    result.push(t);
  return {result, step, origin};
}

function drawAxis() {
  const {g, width, x} = prepare(axis.canvas, 30);
  const {result, step, origin} = ticks(width);
  const unit = step >= 1e9 ? [1e9, 's'] : step >= 1e6 ? [1e6, 'ms'] : step >= 1e3 ? [1e3, 'µs'] : [1, 'ns'];
  g.fillStyle = css.soft;
  for (const t of result) {
    const value = (t - origin) / unit[0];
    g.fillText(`${Math.round(value * 100) / 100} ${unit[1]}`, x(t) + 4, 16);
    g.fillRect(x(t), 9, 1, 21);
  }
  axis.side.innerHTML = `<small>${time(view.end - view.begin)} shown</small>`;
}

// Draws `text` if there is room for it, and returns whether there was.
function label(g, text, left, right, y, color) {
  left = Math.max(left, 0);
  if (right - left < 16 || g.measureText(text).width + 8 > right - left) return false;
  g.fillStyle = color;
  g.fillText(text, left + 5, y);
  return true;
}

function bar(g, left, right, y, height, color) {
  g.fillStyle = color;
  g.beginPath();
  g.roundRect(left, y, Math.max(right - left, .7), height, Math.min(2.5, (right - left) / 3));
  g.fill();
}

function hatch(g, left, right, y, height) {
  g.save();
  g.beginPath();
  g.rect(left, y, Math.max(right - left, 1), height);
  g.clip();
  g.fillStyle = css.veil;
  g.fillRect(left, y, right - left, height);
  g.strokeStyle = css.wait;
  g.lineWidth = 1;
  g.beginPath();
  for (let at = Math.floor((Math.max(left, -20) - height) / 5) * 5; at < Math.min(right, 9000); at += 5) {
    g.moveTo(at, y + height);
    g.lineTo(at + height, y);
  }
  if (right - left > 2) g.stroke();
  else g.fillStyle = css.wait, g.fillRect(left, y, Math.max(right - left, .6), height);
  g.restore();
}

// Returns where an event is drawn, as {left, right, y, height}; null if its kind is not drawn.
function place(rank, event, x) {
  const left = x(event.begin), right = x(event.end);
  const flights = LANE.top + LANE.compute + LANE.gap;
  switch (event.kind) {
    case 'forward': case 'backward': case 'optimizer': case 'wait':
      return {left, right, y: LANE.top, height: LANE.compute};
    case 'flight':
      return {left, right, y: flights + event.lane * LANE.flight, height: LANE.flight - 2};
    case 'issue':
      return {left: left - 2.5, right: left + 2.5, y: LANE.top + LANE.compute, height: 6};
    case 'free':
      return {left: left - 3, right: left + 3, y: rank.height - 8 - LANE.memory - 6, height: 6};
  }
  return null;
}

function isSame(event, other) {
  if (other === null || event.name !== other.name) return false;
  const collective = e => e.kind === 'flight' || e.kind === 'issue' || e.kind === 'wait';
  if (collective(event) && collective(other)) return event.sequence === other.sequence;
  return event === other;
}

function drawLanes(rank, g, x, width) {
  const visible = rank.events.filter(e => e.end >= view.begin && e.begin <= view.end);
  const order = ['forward', 'backward', 'optimizer', 'flight', 'wait', 'issue', 'free'];
  const nested = e => e.name === 'root';
  for (const kind of order) {
    const events = visible.filter(e => e.kind === kind);
    events.sort((a, b) => nested(b) - nested(a) || a.begin - b.begin);
    let pixel = -9;  // of the last drawn event; a short event at the same pixel is skipped
    for (const event of events) {
      const at = place(rank, event, x);
      if (at.right - at.left < .4 && Math.floor(at.left) === pixel) continue;
      pixel = Math.floor(at.left);
      drawEvent(rank, event, at, g);
    }
  }
  if (rank.marked.length > 0) {  // fades the time after the last known event
    g.globalAlpha = .6;
    g.fillStyle = css.panel;
    g.fillRect(x(rank.lastSeen), 0, width, rank.height - 8);
    g.globalAlpha = 1;
  }
  const waits = visible.filter(event => event.kind === 'wait');
  for (const event of visible)
    if (LABELLED.includes(event.kind)) labelEvent(waits, event, place(rank, event, x), g, x);
  for (const event of visible) {
    const at = place(rank, event, x);
    const marked = rank.marked.includes(event);
    if (event.kind === 'issue' && event !== hovered) continue;
    if (at === null || !(marked || isSame(event, hovered))) continue;
    g.strokeStyle = marked ? css.alarm : css.ink;
    g.lineWidth = event.kind === 'issue' || event.kind === 'free' ? 1 : 1.5;
    g.setLineDash(marked ? [5, 3] : []);
    g.strokeRect(at.left, at.y - .5, Math.max(at.right - at.left, 1), at.height + 1);
    g.setLineDash([]);
  }
}

function drawEvent(rank, event, at, g) {
  const left = Math.max(at.left, -5), right = Math.min(at.right, 20000);
  if (event.kind === 'wait') {
    hatch(g, left, right, at.y, at.height);
  } else if (event.kind === 'issue' || event.kind === 'free') {
    g.fillStyle = colorOf(event);
    g.beginPath();
    const down = event.kind === 'free';
    g.moveTo(at.left, down ? at.y : at.y + at.height);
    g.lineTo(at.right, down ? at.y : at.y + at.height);
    g.lineTo((at.left + at.right) / 2, down ? at.y + at.height : at.y);
    g.fill();
  } else if (event.name === 'root' && event.kind !== 'flight') {
    g.globalAlpha = .3;
    bar(g, left, right, at.y, at.height, colorOf(event));
    g.globalAlpha = 1;
  } else {
    bar(g, left, right - (right - left > 4 ? 1 : 0), at.y, at.height, colorOf(event));
  }
}

// Draws the name of a span, or its last part, in the first gap between waits that has room for it.
const LABELLED = ['forward', 'backward', 'optimizer', 'flight'];
function labelEvent(waits, event, at, g, x) {
  const flight = event.kind === 'flight', y = at.y + at.height / 2 + .5;
  if (at.right - at.left < 16 || (event.name === 'root' && !flight)) return;
  const gaps = [];
  let left = at.left;
  for (const wait of waits) {
    if (flight || wait.begin < event.begin || wait.begin > event.end) continue;
    gaps.push([left, x(wait.begin)]);
    left = Math.max(left, x(wait.end));
  }
  gaps.push([left, at.right]);
  const name = event.kind === 'optimizer' ? 'optimizer' : event.name;
  for (const text of [name, name.slice(name.lastIndexOf('.') + 1)])
    for (const [from, to] of gaps)
      if (label(g, text, from, to, y, flight ? css['on-light'] : css['on-color'])) return;
}

// Returns the index of the first sample in `live` that was taken after `t`.
function after(live, t) {
  let low = 0, high = live.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (live[middle][0] > t) high = middle; else low = middle + 1;
  }
  return low;
}

function drawMemory(rank, g, x, width) {
  const bottom = rank.height - 8, scale = (LANE.memory - 13) / highest;
  const live = rank.live, first = Math.max(0, after(live, view.begin) - 1);
  const last = Math.min(live.length, after(live, view.end) + 1);
  g.fillStyle = css.line;
  g.fillRect(0, bottom, width, 1);
  if (last <= first) return;
  const part = live.slice(first, last), sums = new Float64Array(part.length);
  const until = i => i + 1 < part.length ? x(part[i + 1][0]) : x(Math.min(view.end, lastTime));
  for (const name of SHOWN_CLASSES) {
    const cls = classIndex[name];
    g.fillStyle = css[CLASS_COLORS[name]];
    g.beginPath();
    for (let i = 0; i < part.length; ++i) {
      const y = bottom - (sums[i] + part[i][cls]) * scale;
      g.lineTo(x(part[i][0]), y);
      g.lineTo(until(i), y);
    }
    for (let i = part.length - 1; i >= 0; --i) {
      const y = bottom - sums[i] * scale;
      g.lineTo(until(i), y);
      g.lineTo(x(part[i][0]), y);
      sums[i] += part[i][cls];
    }
    g.fill();
  }
  drawPeaks(part, g, x, width, bottom, scale);
}

function drawPeaks(part, g, x, width, bottom, scale) {
  g.strokeStyle = css.ink;
  g.lineWidth = .8;
  g.beginPath();
  let best = null;
  for (let i = 1; i < part.length; ++i) {
    const y = bottom - part[i][1] * scale;
    g.lineTo(x(part[i - 1][0]), y);
    g.lineTo(x(part[i][0]), y);
    if (best === null || part[i][1] > best.bytes)
      best = {bytes: part[i][1], left: x(part[i - 1][0]), right: x(part[i][0])};
  }
  g.stroke();
  if (best === null) return;
  const at = Math.min(Math.max((best.left + best.right) / 2, 4), width - 4);
  const y = bottom - best.bytes * scale;
  g.fillStyle = css.ink;
  g.beginPath();
  g.arc(at, y, 2.4, 0, 7);
  g.fill();
  g.textAlign = at > width - 30 ? 'right' : at < 30 ? 'left' : 'center';
  g.fillText(megabytes(best.bytes), at, y - 8);
  g.textAlign = 'left';
}

// Labels the lanes: beside them, or above them on a narrow page.
function captions(rank) {
  const flights = LANE.top + LANE.compute + LANE.gap, {flight, compute, memory} = LANE;
  const lanes = [['compute', LANE.top, compute], ['collectives', flights, rank.flightLanes * flight - 2],
                 ['live bytes', rank.height - 8 - memory, memory]];
  return lanes.map(([text, top, height]) =>
    `<em style="top:${narrow.matches ? top - 20 : top + height / 2 - 8}px">${text}</em>`).join('');
}

function drawRank(rank) {
  const {g, width, x} = prepare(rank.canvas, rank.height);
  g.fillStyle = css.line;
  g.globalAlpha = .6;
  for (const t of ticks(width).result) g.fillRect(x(t), 0, 1, rank.height);
  g.globalAlpha = 1;
  g.fillStyle = css.soft;
  for (const event of rank.events)
    if (event.kind === 'step' && chosen === 0 && numbers.length <= 60) g.fillRect(x(event.begin), 0, 1, rank.height);
  drawMemory(rank, g, x, width);
  drawLanes(rank, g, x, width);

  const begin = Math.max(view.begin, 0), end = Math.min(view.end, lastTime);
  let waited = 0, peak = 0;
  for (const e of rank.waits)
    waited += Math.max(0, Math.min(e.end, end) - Math.max(e.begin, begin));
  const first = after(rank.live, begin), last = after(rank.live, end) + 1;
  for (const sample of rank.live.slice(first, last)) peak = Math.max(peak, sample[1]);
  rank.lanes.innerHTML = narrow.matches ? captions(rank) : '';
  rank.side.innerHTML = `<b>rank ${rank.number}</b><small>waits ${(100 * waited / (end - begin)).toFixed(0)} %` +
      `</small><small>peak ${megabytes(peak)}</small>` + (narrow.matches ? '' : captions(rank));
}

let scheduled = false;
function redraw() {
  if (scheduled) return;
  scheduled = true;
  requestAnimationFrame(() => {
    scheduled = false;
    readColors();
    drawAxis();
    for (const rank of ranks) drawRank(rank);
  });
}
