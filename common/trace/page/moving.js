// Handles what the reader does: choosing a step, panning, zooming, pointing.
'use strict';
function show(begin, end) {
  const span = Math.min(Math.max(end - begin, 200), lastTime * 1.1);
  const middle = Math.min(Math.max((begin + end) / 2, 0), lastTime);
  view = {begin: middle - span / 2, end: middle + span / 2};
  redraw();
}
function fit() {
  const {begin, end} = choices[chosen], margin = (end - begin) * .012;
  show(begin - margin, end + margin);
}
function choose(index) {
  chosen = Math.min(Math.max(index, 0), choices.length - 1);
  element('step').selectedIndex = chosen;
  element('previous').disabled = chosen === 0;
  element('next').disabled = chosen === choices.length - 1;
  fit();
}
function zoom(factor, at = (view.begin + view.end) / 2) {
  show(at - (at - view.begin) * factor, at + (view.end - at) * factor);
}
function pan(part) {
  const by = (view.end - view.begin) * part;
  show(view.begin + by, view.end + by);
}
const timeAt = clientX => {
  const box = axis.canvas.getBoundingClientRect();
  return view.begin + (clientX - box.left) / box.width * (view.end - view.begin);
};

function eventAt(rank, clientX, clientY) {
  const box = rank.canvas.getBoundingClientRect();
  const px = clientX - box.left, py = clientY - box.top;
  const x = t => (t - view.begin) / (view.end - view.begin) * box.width;
  let found = null;
  for (const event of rank.events) {
    const at = place(rank, event, x);
    if (at === null || py < at.y || py > at.y + at.height + 1) continue;
    if (px < at.left - 1.5 || px > at.right + 1.5) continue;
    const length = event.end - event.begin;
    const before = found === null ? Infinity : found.end - found.begin;
    if (length <= before) found = event;  // the shortest is the innermost one
  }
  return found;
}

function describe(event) {
  const collective = ['flight', 'issue', 'wait'].includes(event.kind);
  const words = {flight: 'in flight', issue: 'issued', wait: 'wait'};
  const title = collective ? `${event.operation} ${words[event.kind]}` : event.kind;
  const lines = [['begins', time(event.begin - choices[chosen].begin)]];
  if (event.open) lines.push(['ends', 'never']);
  else if (event.end > event.begin) lines.push(['takes', time(event.end - event.begin)]);
  if (collective) lines.push(['call', '#' + event.sequence], ['received', grouped(event.bytes) + ' B']);
  if (event.kind === 'free') lines.push(['freed', grouped(event.bytes) + ' B']);
  const table = lines.map(([a, b]) => `<tr><td>${a}</td><td>${b}</td></tr>`).join('');
  return `<b>${title} ${escape(event.name)}</b> on rank ${event.rank}<table>${table}</table>`;
}

function describeMemory(rank, t) {
  const index = after(rank.live, t) - 1;
  if (index < 0) return null;
  const sample = rank.live[index], next = rank.live[index + 1];
  const total = data.classes.reduce((sum, _, i) => sum + sample[i + 2], 0);
  const line = (color, name, bytes) =>
      `<tr><td><i style="background:var(--${color})"></i>${name}</td><td>${grouped(bytes)}</td></tr>`;
  const table = [...SHOWN_CLASSES].reverse().filter(name => sample[classIndex[name]] > 0)
      .map(name => line(CLASS_COLORS[name], name.replace('_', ' '), sample[classIndex[name]])).join('');
  const peak = next ? `<tr><td>highest until the next event</td><td>${grouped(next[1])}</td></tr>` : '';
  return `<b>${grouped(total)} bytes live</b> on rank ${rank.number}<table>${table}${peak}</table>`;
}

function hover(event) {
  const rank = ranks.find(r => r.canvas === event.target);
  const before = hovered;
  hovered = rank ? eventAt(rank, event.clientX, event.clientY) : null;
  if (hovered !== before) redraw();
  const box = main.getBoundingClientRect(), canvas = axis.canvas.getBoundingClientRect();
  element('hair').style.display = event.clientX >= canvas.left ? 'block' : 'none';
  element('hair').style.left = event.clientX - box.left - 1 + 'px';
  let text = hovered && describe(hovered);
  if (!text && rank && event.offsetY > rank.height - 8 - LANE.memory)
    text = describeMemory(rank, timeAt(event.clientX));
  const tip = element('tip');
  tip.style.display = text ? 'block' : 'none';
  if (!text) return;
  tip.innerHTML = text;
  const left = Math.min(event.clientX + 16, window.innerWidth - tip.offsetWidth - 10);
  const below = event.clientY + 18 + tip.offsetHeight < window.innerHeight;
  tip.style.left = left + 'px';
  tip.style.top = (below ? event.clientY + 18 : event.clientY - tip.offsetHeight - 12) + 'px';
}

const pointers = new Map();
main.addEventListener('pointerdown', event => {
  pointers.set(event.pointerId, event.clientX);
  main.setPointerCapture && event.target.setPointerCapture(event.pointerId);
});
main.addEventListener('pointermove', event => {
  if (!pointers.has(event.pointerId)) return hover(event);
  const others = [...pointers].filter(([id]) => id !== event.pointerId).map(([, x]) => x);
  const from = pointers.get(event.pointerId), width = axis.canvas.clientWidth;
  pointers.set(event.pointerId, event.clientX);
  element('tip').style.display = 'none';
  if (others.length === 0) return pan((from - event.clientX) / width);
  zoom(Math.abs(from - others[0]) / Math.max(1, Math.abs(event.clientX - others[0])), timeAt(others[0]));
});
for (const name of ['pointerup', 'pointercancel'])
  main.addEventListener(name, event => pointers.delete(event.pointerId));
main.addEventListener('pointerleave', () => {
  hovered = null;
  element('tip').style.display = element('hair').style.display = 'none';
  redraw();
});
main.addEventListener('dblclick', event => {
  if (hovered === null || hovered.end <= hovered.begin) return fit();
  const margin = (hovered.end - hovered.begin) * .08;
  show(hovered.begin - margin, hovered.end + margin);
});
main.addEventListener('wheel', event => {
  const sideways = event.shiftKey ? event.deltaX || event.deltaY : event.deltaX;
  if (!event.ctrlKey && !event.metaKey && Math.abs(sideways) <= Math.abs(event.deltaY) && !event.shiftKey)
    return;  // the page scrolls
  event.preventDefault();
  if (event.ctrlKey || event.metaKey) zoom(Math.exp(event.deltaY * .004), timeAt(event.clientX));
  else pan(sideways / axis.canvas.clientWidth);
}, {passive: false});
document.addEventListener('keydown', event => {
  const busy = ['SELECT', 'INPUT'].includes(event.target.tagName);  // INPUT: a site's search
  if (busy || event.ctrlKey || event.metaKey || event.altKey) return;
  const actions = {a: () => pan(-.15), ArrowLeft: () => pan(-.15), d: () => pan(.15),
                   ArrowRight: () => pan(.15), w: () => zoom(.8), '+': () => zoom(.8),
                   s: () => zoom(1.25), '-': () => zoom(1.25), 0: fit,
                   '[': () => choose(chosen - 1), ']': () => choose(chosen + 1)};
  const action = actions[event.key];
  if (!action) return;
  event.preventDefault();
  action();
});
element('step').onchange = () => choose(element('step').selectedIndex);
element('previous').onclick = () => choose(chosen - 1);
element('next').onclick = () => choose(chosen + 1);
element('in').onclick = () => zoom(.6);
element('out').onclick = () => zoom(1 / .6);
element('fit').onclick = fit;
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', redraw);
new MutationObserver(redraw).observe(document.body, {attributeFilter: ['data-theme']});
narrow.addEventListener('change', redraw);
new ResizeObserver(redraw).observe(main);

document.title = data.title;
element('title').textContent = data.title;
element('failure').textContent = data.failure;
for (const choice of choices) element('step').add(new Option(choice.label));
fillLegend();
choose(chosen);
