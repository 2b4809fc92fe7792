// Charts over time, drawn by uPlot: speed and world of a job, with a mark at each change of the world.

import { h, clock, number } from "./dom.js"

const uPlot = globalThis.uPlot
const HIGH = 190

/** The colour that a custom property has now: light-dark() is resolved only where it is used. */
function resolved(name) {
  const probe = h("span"); probe.style.color = `var(${name})`
  document.body.append(probe)
  const found = getComputedStyle(probe).color
  probe.remove()
  return found
}

/** One chart: `chart.to(data, marks, range)`; `group` shares the cursor. */
export function chart({ label, unit, colour, stepped = false, group, digits = 3 }) {
  const place = h("div.plot", { role: "img" })
  const said = h("span.num.reading"), element = h("figure.chart", {}, h("figcaption", {}, h("span", {}, label), said), place)
  let plot = null, marks = [], data = [[], []], range = [0, 1]

  const options = () => {
    const ink = resolved("--muted"), line = resolved("--line"), stroke = resolved(colour), mark = resolved("--mark")
    const faint = stroke.replace("rgb(", "rgba(").replace(")", ", .14)")
    const axis = { stroke: ink, font: "11px system-ui, sans-serif", ticks: { show: false }, grid: { stroke: line, width: 1 } }
    return {
      width: Math.max(200, place.clientWidth), height: HIGH, legend: { show: false },
      cursor: { sync: { key: group }, points: { size: 7 }, y: false, drag: { x: false, y: false } },
      scales: { x: { time: true, range: () => range }, y: { range: (_, low, high) => [0, Math.max(high * 1.15, stepped ? 2 : 1e-6)] } },
      axes: [
        { ...axis, size: 30, grid: { show: false }, values: (_, at) => at.map(clock), space: 72 },
        { ...axis, size: 52, values: (_, at) => at.map(value => number(value, digits)),
          incrs: stepped ? [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 5000] : undefined },
      ],
      series: [{}, { label, stroke, width: 2, fill: faint, spanGaps: false, points: { show: false },
        paths: stepped ? uPlot.paths.stepped({ align: 1 }) : undefined }],
      hooks: {
        drawClear: [u => drawMarks(u, marks, mark)],
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
    to(found, changes, between) {
      data = found; marks = changes; range = between
      place.setAttribute("aria-label", `${label}: ${said.textContent || "no values yet"}`)
      if (!plot) redraw(); else plot.setData(data)
      if (plot?.cursor.idx == null || plot.cursor.left < 0) read(null)
    },
    end() { size.disconnect(); plot?.destroy(); plot = null },
  }
}

function drawMarks(plot, marks, colour) {
  const { ctx, bbox } = plot, ratio = devicePixelRatio
  ctx.save()
  ctx.strokeStyle = ctx.fillStyle = colour
  ctx.lineWidth = ratio
  ctx.setLineDash([3 * ratio, 3 * ratio])
  for (const at of marks) {
    const x = Math.round(plot.valToPos(at, "x", true))
    if (x < bbox.left || x > bbox.left + bbox.width) continue
    ctx.beginPath(); ctx.moveTo(x, bbox.top); ctx.lineTo(x, bbox.top + bbox.height); ctx.stroke()
  }
  ctx.restore()
}
