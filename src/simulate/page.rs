//! A self-contained page of charts: device memory over time, waits of requests, and the cost of every policy. Draws SVG; counts
//! nothing itself.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::setup::Setup;
use super::table::short;
use pool::{ModelId, Span, Time};
use sim::replay::{Holding, Report};

const STYLE: &str = include_str!("page.css");
const WIDTH: f64 = 1180.0;
const LEFT: f64 = 70.0;
/// The maximum number of stays drawn; the longest ones are kept.
const HOLDINGS_MAX: usize = 6_000;
/// The maximum number of models with a separate colour and legend entry.
const LEGEND_MAX: usize = 24;

pub fn render(setup: &Setup, reports: &[Report], shown: &str) -> String {
    let mut out = String::new();
    let title = format!("Replay of {}", escape(&setup.workload.spec));
    let _ = write!(
        out,
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\
         <title>{title}</title><style>{STYLE}</style></head><body><h1>{title}</h1>"
    );
    let first = &reports[0];
    let _ = write!(
        out,
        "<p>{} requests for {} models on {} devices, over {}.</p>",
        first.all.requests,
        setup.scenario.models.len(),
        setup.scenario.devices.len(),
        days(first.to.since(first.from)),
    );
    for notice in &setup.notices {
        let _ = write!(out, "<p>{}</p>", escape(notice));
    }
    summary(&mut out, reports);
    if let Some(report) = reports.iter().find(|report| report.policy == shown) {
        time_line(&mut out, setup, report);
    }
    bars(
        &mut out,
        "Seconds of loading per request",
        reports,
        |report| {
            let seconds = report.all.reload.0 as f64 / 1000.0 / report.all.requests.max(1) as f64;
            (seconds, format!("{seconds:.3} s"))
        },
    );
    bars(&mut out, "Mean wait of a request", reports, |report| {
        let wait = report.all.waits.mean;
        (wait.0 as f64, short(wait))
    });
    curves(&mut out, reports);
    out.push_str("</body></html>\n");
    out
}

fn summary(out: &mut String, reports: &[Report]) {
    out.push_str("<h2>Policies</h2><div class=\"scroll\"><table><tr>");
    for head in [
        "policy",
        "served",
        "refused",
        "timed out",
        "cut",
        "cold",
        "wait p50",
        "p95",
        "p99",
        "loads",
        "loading",
        "GPU hours held",
        "idle",
        "inversions",
    ] {
        let _ = write!(out, "<th>{head}</th>");
    }
    out.push_str("</tr>");
    for report in reports {
        let all = &report.all;
        let refused: u64 = all.refused.values().sum();
        let hours = |seconds: u64| format!("{:.1}", seconds as f64 / 3600.0);
        let cells = [
            all.served.to_string(),
            refused.to_string(),
            all.timed_out.to_string(),
            report.cut.to_string(),
            format!(
                "{:.2} %",
                100.0 * all.cold as f64 / all.requests.max(1) as f64
            ),
            short(all.waits.p50),
            short(all.waits.p95),
            short(all.waits.p99),
            all.loads.to_string(),
            format!("{:.1} h", all.reload.0 as f64 / 3_600_000.0),
            hours(report.device_seconds_held),
            hours(report.device_seconds_idle),
            report.inversions.to_string(),
        ];
        let _ = write!(out, "<tr><td>{}</td>", escape(&report.policy));
        for cell in cells {
            let _ = write!(out, "<td>{cell}</td>");
        }
        out.push_str("</tr>");
    }
    out.push_str("</table></div>");
}

/// Draws a lane for each device. The height of a stay is its share of the memory, stacked where there is space; loading is pale.
fn time_line(out: &mut String, setup: &Setup, report: &Report) {
    let devices = &setup.scenario.devices;
    let lane = (420.0 / devices.len() as f64).clamp(16.0, 160.0);
    let height = devices.len() as f64 * (lane + 6.0) + 26.0;
    let scale = Scale::new(report.from, report.to);
    let colours = colours(report);
    let _ = write!(
        out,
        "<h2>Device memory under {}</h2><div class=\"scroll\"><svg id=\"memory\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"device memory by model over time\">",
        escape(&report.policy)
    );
    let mut longest: Vec<&Holding> = report.holdings.iter().collect();
    longest.sort_by_key(|holding| std::cmp::Reverse(holding.to.since(holding.from)));
    longest.truncate(HOLDINGS_MAX);
    for (nth, (device, reading)) in devices.iter().enumerate() {
        let top = nth as f64 * (lane + 6.0);
        let _ = write!(
            out,
            "<rect class=\"lane\" x=\"{LEFT}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{lane:.1}\"/><text x=\"0\" y=\"{:.1}\">{}</text>",
            WIDTH - LEFT,
            top + lane / 2.0 + 4.0,
            escape(&reading.name)
        );
        let mut here: Vec<&Holding> = longest
            .iter()
            .copied()
            .filter(|holding| holding.device == *device)
            .collect();
        here.sort_by_key(|holding| (holding.from, holding.model));
        let total = reading.total.0.max(1) as f64;
        let mut taken: Vec<(f64, f64, Time)> = Vec::new();
        for holding in here {
            taken.retain(|(.., until)| *until > holding.from);
            let tall = (holding.bytes.0 as f64 / total * lane).max(1.5);
            let low = lowest_gap(&mut taken, tall);
            taken.push((low, low + tall, holding.to));
            draw(
                out,
                setup,
                holding,
                &scale,
                (top + lane - low - tall, tall),
                &colours,
            );
        }
    }
    scale.axis(out, height);
    out.push_str("</svg></div>");
    legend(out, setup, &colours);
    let hidden = report.holdings.len().saturating_sub(HOLDINGS_MAX);
    if hidden > 0 {
        let _ = write!(out, "<p>The {hidden} shortest stays are not drawn.</p>");
    }
}

fn lowest_gap(taken: &mut [(f64, f64, Time)], tall: f64) -> f64 {
    taken.sort_by(|one, other| one.0.total_cmp(&other.0));
    let mut low = 0.0;
    for (from, to, _) in taken.iter() {
        if low + tall <= from + 0.01 {
            break;
        }
        low = f64::max(low, *to);
    }
    low
}

fn draw(
    out: &mut String,
    setup: &Setup,
    holding: &Holding,
    scale: &Scale,
    (y, tall): (f64, f64),
    colours: &BTreeMap<ModelId, String>,
) {
    let ready = holding.ready.unwrap_or(holding.to);
    let other = "#8b949e".to_owned();
    let colour = colours.get(&holding.model).unwrap_or(&other);
    let name = escape(&setup.scenario.models[holding.model.0 as usize].name);
    let what = format!(
        "{name}: {} for {}, loaded in {}, {}",
        holding.bytes,
        holding.to.since(holding.from),
        ready.since(holding.from),
        escape(&holding.reason)
    );
    for (from, to, opacity) in [(holding.from, ready, 0.35), (ready, holding.to, 0.95)] {
        let (x, end) = (scale.x(from), scale.x(to));
        if end > x {
            let _ = write!(
                out,
                "<rect x=\"{x:.2}\" y=\"{y:.1}\" width=\"{:.2}\" height=\"{tall:.1}\" fill=\"{colour}\" opacity=\"{opacity}\"><title>{what}</title></rect>",
                end - x
            );
        }
    }
}

/// The models that held most memory, each with a colour far from its neighbours'.
fn colours(report: &Report) -> BTreeMap<ModelId, String> {
    let mut held: Vec<(u64, ModelId)> = report
        .by_model
        .iter()
        .map(|(id, tally)| (tally.held_gib_seconds, *id))
        .collect();
    held.sort_by_key(|(held, id)| (std::cmp::Reverse(*held), *id));
    held.truncate(LEGEND_MAX);
    held.into_iter()
        .enumerate()
        .map(|(nth, (_, id))| {
            let hue = (nth as f64 * 137.508) % 360.0;
            let light = [48, 62, 40][nth % 3];
            (id, format!("hsl({hue:.0} 62% {light}%)"))
        })
        .collect()
}

fn legend(out: &mut String, setup: &Setup, colours: &BTreeMap<ModelId, String>) {
    out.push_str("<div class=\"legend\">");
    for (id, colour) in colours {
        let name = escape(&setup.scenario.models[id.0 as usize].name);
        let _ = write!(
            out,
            "<span><i style=\"background:{colour}\"></i>{name}</span>"
        );
    }
    out.push_str(
        "<span><i style=\"background:#8b949e\"></i>others</span><span>pale: loading</span></div>",
    );
}

fn bars(
    out: &mut String,
    title: &str,
    reports: &[Report],
    value: impl Fn(&Report) -> (f64, String),
) {
    let most = reports
        .iter()
        .map(|report| value(report).0)
        .fold(0.0, f64::max)
        .max(1e-9);
    let height = reports.len() as f64 * 26.0;
    let _ = write!(
        out,
        "<h2>{title}</h2><div class=\"scroll\"><svg class=\"bars\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{title}\">"
    );
    for (nth, report) in reports.iter().enumerate() {
        let (amount, text) = value(report);
        let y = nth as f64 * 26.0;
        let wide = (amount / most * (WIDTH - 260.0)).max(1.0);
        let _ = write!(
            out,
            "<text x=\"0\" y=\"{:.0}\">{}</text><rect x=\"130\" y=\"{:.0}\" width=\"{wide:.1}\" height=\"18\" rx=\"2\" fill=\"{}\"/><text x=\"{:.1}\" y=\"{:.0}\">{text}</text>",
            y + 16.0,
            escape(&report.policy),
            y + 3.0,
            policy_colour(nth),
            138.0 + wide,
            y + 16.0,
        );
    }
    out.push_str("</svg></div>");
}

fn curves(out: &mut String, reports: &[Report]) {
    let height = 220.0;
    let scale = Scale::new(reports[0].from, reports[0].to);
    // A logarithmic scale, to fit waits of milliseconds and of minutes into one chart.
    let level = |wait: Span| (wait.0.max(1) as f64).log10();
    let points = reports.iter().flat_map(|report| &report.wait_curve);
    let most = points.map(|(_, _, wait)| level(*wait)).fold(1.0, f64::max);
    let y = |wait: Span| height - 24.0 - level(wait) / most * (height - 40.0);
    let _ = write!(
        out,
        "<h2>Waits over time</h2><div class=\"scroll\"><svg id=\"waits\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"mean waits over time\">"
    );
    for power in 0..=most as u32 {
        let wait = Span(10_u64.pow(power));
        let _ = write!(
            out,
            "<line class=\"axis\" x1=\"{LEFT}\" x2=\"{WIDTH}\" y1=\"{0:.1}\" y2=\"{0:.1}\"/><text x=\"0\" y=\"{1:.1}\">{2}</text>",
            y(wait),
            y(wait) + 4.0,
            short(wait)
        );
    }
    for (nth, report) in reports.iter().enumerate() {
        let mut path = String::new();
        for (at, _, wait) in &report.wait_curve {
            let step = if path.is_empty() { 'M' } else { 'L' };
            let _ = write!(path, "{step}{:.1} {:.1}", scale.x(*at), y(*wait));
        }
        let _ = write!(
            out,
            "<path d=\"{path}\" fill=\"none\" stroke=\"{}\" stroke-width=\"1.4\"><title>{}</title></path>",
            policy_colour(nth),
            escape(&report.policy)
        );
    }
    scale.axis(out, height);
    out.push_str("</svg></div><div class=\"legend\">");
    for (nth, report) in reports.iter().enumerate() {
        let (colour, name) = (policy_colour(nth), escape(&report.policy));
        let _ = write!(
            out,
            "<span><i style=\"background:{colour}\"></i>{name}</span>"
        );
    }
    out.push_str("</div>");
}

fn policy_colour(nth: usize) -> String {
    let hue = (212.0 + nth as f64 * 137.508) % 360.0;
    format!("hsl({hue:.0} 65% 50%)")
}

/// The horizontal axis of time.
struct Scale {
    from: Time,
    length: f64,
}

impl Scale {
    fn new(from: Time, to: Time) -> Scale {
        Scale {
            from,
            length: to.since(from).0.max(1) as f64,
        }
    }

    fn x(&self, at: Time) -> f64 {
        LEFT + at.since(self.from).0 as f64 / self.length * (WIDTH - LEFT)
    }

    fn axis(&self, out: &mut String, height: f64) {
        for tenth in 0..10 {
            let at = Time(self.from.0 + (self.length * f64::from(tenth) / 10.0) as u64);
            let _ = write!(
                out,
                "<text x=\"{:.1}\" y=\"{:.1}\">{}</text>",
                self.x(at),
                height - 6.0,
                days(at.since(self.from))
            );
        }
    }
}

fn days(span: Span) -> String {
    match span.0 {
        ms if ms >= 172_800_000 => format!("{:.1} days", ms as f64 / 86_400_000.0),
        ms if ms >= 7_200_000 => format!("{:.1} h", ms as f64 / 3_600_000.0),
        ms => format!("{:.1} min", ms as f64 / 60_000.0),
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}
