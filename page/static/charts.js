// A job over time, drawn by uPlot: its speed and its size below the names of what happened, as in the demo's report.

import { h, clock, number } from "./dom.js"

const uPlot = globalThis.uPlot
const HIGH = 150, ROWS = 4, ROW = 22, LEFT = 52, RIGHT = 26
const COLOURS = { life: "--calm", fault: "--bad", scale: "--world", pause: "--mark" }

/** The colour that a custom property has now: light-dark() is resolved only where it is used. */
function resolved(name) {
  const probe = h("span"); probe.style.color = `var(${name})`
  document.body.append(probe)
  const found = getComputedStyle(probe).color
  probe.remove()
  return found
}

/** Speed and size with one axis of time: `timeline.to({ speed, world, marks, bands, range })`. */
export function timeline() {
  const group = `job-${Math.random()}`, flags = h("div.flags", { "aria-hidden": "true" }), none = h("p.muted", {}, "No step was made yet, so there is no speed to show.")
  const speed = chart({ label: "Speed", unit: "samples/s", colour: "--speed", group }), world = chart({ label: "World", unit: "workers", colour: "--world", stepped: true, group })
  const element = h("div.timeline", {}, flags, none, speed.element, world.element)
  let marks = [], range = [0, 1]
  const name = () => {
    const wide = flags.clientWidth - LEFT - RIGHT, ends = []
    flags.replaceChildren(...marks.filter(each => each.label && each.at >= range[0] && each.at <= range[1]).map(each => {
      const flag = h("span.flag", { title: `${clock(each.at)} ${each.title}: ${each.text}`, "data-mark": each.mark }, each.label)
      const size = Math.min(180, 7 * each.label.length + 18), x = LEFT + wide * (each.at - range[0]) / (range[1] - range[0])
      const left = Math.max(0, Math.min(x - size / 2, LEFT + wide - size)), row = [...ends, -1].findIndex(end => end <= left)
      if (row >= ROWS) return null  // the list below has it
      ends[row] = left + size + 4
      flag.style.left = `${left}px`; flag.style.top = `${row * ROW}px`
      return flag
    }).filter(Boolean))
    flags.style.height = `${Math.min(ROWS, ends.length) * ROW}px`
  }
  const size = new ResizeObserver(name)
  size.observe(flags)
  return {
    element, redraw() { speed.redraw(); world.redraw() }, end() { size.disconnect(); speed.end(); world.end() },
    to(found) {
      ({ range } = found); marks = found.marks
      const fast = found.speed[1].some(Boolean)
      speed.element.hidden = !fast; none.hidden = fast
      if (fast) speed.to(found.speed, found)
      world.to(found.world, found)
      name()
    },
  }
}

function chart({ label, unit, colour, stepped = false, group, digits = 3 }) {
  const place = h("div.plot", { role: "img" })
  const said = h("span.num.reading"), element = h("figure.chart", {}, h("figcaption", {}, h("span", {}, label), said), place)
  let plot = null, around = { marks: [], bands: [], range: [0, 1] }, data = [[], []]

  const options = () => {
    const ink = resolved("--muted"), line = resolved("--line"), stroke = resolved(colour), inks = Object.fromEntries(Object.entries(COLOURS).map(([mark, name]) => [mark, resolved(name)]))
    const faint = stroke.replace("rgb(", "rgba(").replace(")", ", .14)")
    const axis = { stroke: ink, font: "11px system-ui, sans-serif", ticks: { show: false }, grid: { stroke: line, width: 1 } }
    return {
      width: Math.max(200, place.clientWidth), height: HIGH, padding: [8, RIGHT, stepped ? 0 : 8, 0], legend: { show: false },
      cursor: { sync: { key: group }, points: { size: 7 }, y: false, drag: { x: false, y: false } },
      scales: { x: { time: true, range: () => around.range }, y: { range: (_, low, high) => [0, stepped ? Math.max(high * 1.15, 2) : high * 1.15 || 1] } },
      axes: [
        { ...axis, show: stepped, size: 30, grid: { show: false }, values: (_, at) => at.map(clock), space: 72 },
        { ...axis, size: LEFT, space: 26, values: (_, at) => at.map(value => number(value, digits)),
          incrs: stepped ? [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 5000] : undefined },
      ],
      series: [{}, { label, stroke, width: 2, fill: faint, spanGaps: false, points: { show: false },
        paths: stepped ? uPlot.paths.stepped({ align: 1 }) : undefined }],
      hooks: {
        drawClear: [u => drawMarks(u, around, inks)],
        setCursor: [u => read(u.cursor.idx)],
      },
    }
  }
  const read = at => {
    const last = data[0].length - 1, index = at ?? last
    said.textContent = index < 0 || data[1][index] == null ? "" : `${number(data[1][index], digits)} ${unit}${at == null ? "" : " at " + clock(data[0][index])}`
  }
  const redraw = () => { plot?.destroy(); plot = null; if (place.isConnected && data[0].length) plot = new uPlot(options(), data, place) }
  const size = new ResizeObserver(() => plot && place.clientWidth && Math.abs(plot.width - place.clientWidth) > 1
    && plot.setSize({ width: place.clientWidth, height: HIGH }))
  size.observe(place)
  return {
    element, redraw,
    to(found, about) {
      data = found; around = about
      place.setAttribute("aria-label", `${label}: ${said.textContent || "no values yet"}`)
      if (!plot) redraw(); else plot.setData(data)
      if (plot?.cursor.idx == null || plot.cursor.left < 0) read(null)
    },
    end() { size.disconnect(); plot?.destroy(); plot = null },
  }
}

function drawMarks(plot, { marks, bands }, inks) {
  const { ctx, bbox } = plot, ratio = devicePixelRatio, inside = at => Math.max(bbox.left, Math.min(bbox.left + bbox.width, plot.valToPos(at, "x", true)))
  ctx.save()
  ctx.fillStyle = inks.fault; ctx.globalAlpha = .25
  for (const [began, ended] of bands) if (inside(ended) > bbox.left) ctx.fillRect(inside(began), bbox.top, Math.max(2 * ratio, inside(ended) - inside(began)), bbox.height)
  ctx.globalAlpha = 1
  ctx.lineWidth = ratio
  ctx.setLineDash([3 * ratio, 3 * ratio])
  for (const { at, mark } of marks) {
    ctx.strokeStyle = inks[mark]
    const x = Math.round(plot.valToPos(at, "x", true))
    if (x < bbox.left || x > bbox.left + bbox.width) continue
    ctx.beginPath(); ctx.moveTo(x, bbox.top); ctx.lineTo(x, bbox.top + bbox.height); ctx.stroke()
  }
  ctx.restore()
}
