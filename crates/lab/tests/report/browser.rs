//! A page is opened in headless Chromium in a frame of a given width, together with a probe that looks
//! at it from inside and posts what it saw to the page around the frame, from where it is read.

use serde::Deserialize;
use std::process::Command;

/// Runs inside the page.
const PROBE: &str = r#"<script>
addEventListener('load', () => {
  const seen = { errors: window.probeErrors, dark: matchMedia('(prefers-color-scheme: dark)').matches,
    width: document.documentElement.clientWidth, overflow: 0, fetched: 0, plots: [], contrast: 21 };
  seen.overflow = document.documentElement.scrollWidth - document.documentElement.clientWidth;
  seen.fetched = performance.getEntriesByType('resource').length;
  for (const svg of document.querySelectorAll('svg[data-plot]')) {
    const frame = svg.getBoundingClientRect();
    const inside = box => box.width > 0 && box.height > 0 && box.left >= frame.left - 1 && box.right <= frame.right + 1 &&
      box.top >= frame.top - 1 && box.bottom <= frame.bottom + 1;
    const marks = [...svg.querySelectorAll('.mark')], texts = [...svg.querySelectorAll('text')];
    const labels = texts.map(text => text.getBoundingClientRect());
    const clash = labels.some((a, i) => labels.some((b, j) => i < j && a.left < b.right - 1 && b.left < a.right - 1 &&
      a.top < b.bottom - 4 && b.top < a.bottom - 4));
    seen.plots.push({ name: svg.dataset.plot, promised: +svg.dataset.marks, title: !!svg.querySelector('title').textContent,
      drawn: marks.filter(mark => inside(mark.getBoundingClientRect()) && getComputedStyle(mark).fill !== 'none').length,
      labels: !clash && labels.every(inside),
      smallest: Math.min(...labels.map(box => box.height)) });
  }
  const light = colour => { const c = colour.match(/[\d.]+/g).map(Number).slice(0, 3).map(v => v / 255)
    .map(v => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4); return .2126 * c[0] + .7152 * c[1] + .0722 * c[2]; };
  const behind = node => { for (; node; node = node.parentElement) { const c = getComputedStyle(node).backgroundColor;
    if (!/, 0\)$|transparent/.test(c)) return c; } return 'rgb(255,255,255)'; };
  for (const node of document.querySelectorAll('p,li,td,th,dt,dd,h1,h2,h3,figcaption,summary,svg text')) {
    if (!node.textContent.trim()) continue;
    const style = getComputedStyle(node), ink = light(node.closest('svg') ? style.fill : style.color), page = light(behind(node));
    const ratio = (Math.max(ink, page) + .05) / (Math.min(ink, page) + .05);
    if (ratio < seen.contrast) { seen.contrast = ratio; seen.faintest = node.textContent.slice(0, 40); }
  }
  parent.postMessage(JSON.stringify(seen), '*');
});
</script>"#;

/// Collects errors from the first script on.
const TRAP: &str = "<script>window.probeErrors = []; addEventListener('error', e => probeErrors.push(e.message || 'cannot load ' + e.target.src), true);</script>";

/// The probe's findings.
#[derive(Deserialize, Debug)]
pub struct Seen {
    errors: Vec<String>,
    pub dark: bool,
    pub width: u32,
    overflow: i32,
    fetched: u32,
    pub plots: Vec<PlotSeen>,
    contrast: f64,
    faintest: Option<String>,
}

/// One plot.
#[derive(Deserialize, Debug)]
pub struct PlotSeen {
    pub name: String,
    pub promised: usize,
    pub drawn: usize,
    title: bool,
    labels: bool,
    smallest: f64,
}

impl Seen {
    /// Faults of the page.
    pub fn faults(&self) -> Vec<String> {
        let mut faults: Vec<String> = self.errors.iter().map(|error| format!("script error: {error}")).collect();
        if self.overflow > 0 {
            faults.push(format!("{} pixels of overflow at a width of {}", self.overflow, self.width));
        }
        if self.fetched > 0 {
            faults.push(format!("{} fetches", self.fetched));
        }
        if self.contrast < 4.5 {
            faults.push(format!("contrast of {:.1} at {:?}", self.contrast, self.faintest));
        }
        for plot in &self.plots {
            if plot.drawn != plot.promised || plot.promised == 0 || !plot.title || !plot.labels || plot.smallest < 9.0 {
                faults.push(format!("{plot:?}"));
            }
        }
        if self.plots.is_empty() {
            faults.push("no plot".to_owned());
        }
        faults
    }
}

/// Opens a page in a frame `width` pixels wide and tells what the probe saw.
pub fn look(page: &str, width: u32, dark: bool) -> Seen {
    let dir = tempfile::tempdir().unwrap();
    let framed =
        page.replacen("<head>", &format!("<head>{TRAP}"), 1).replacen("</body>", &format!("{PROBE}</body>"), 1);
    assert!(framed.contains(TRAP) && framed.contains(PROBE));
    std::fs::write(dir.path().join("report.html"), framed).unwrap();
    let around = format!(
        "<!doctype html><body style='margin:0'><iframe src='report.html' style='width:{width}px;height:900px;border:0'></iframe>\
         <pre id='seen'></pre><script>addEventListener('message', e => document.getElementById('seen').textContent = e.data)\
         </script>"
    );
    let path = dir.path().join("around.html");
    std::fs::write(&path, around).unwrap();
    let output = Command::new("chromium")
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"])
        .args(["--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars"])
        .arg(format!("--blink-settings=preferredColorScheme={}", if dark { 0 } else { 1 }))
        .arg(format!("--user-data-dir={}", dir.path().join("profile").display()))
        .args(["--window-size=1400,1000", "--virtual-time-budget=10000", "--dump-dom"])
        .arg(format!("file://{}", path.display()))
        .output()
        .unwrap();
    let dom = String::from_utf8_lossy(&output.stdout);
    let seen = dom.split("<pre id=\"seen\">").nth(1).and_then(|rest| rest.split("</pre>").next()).unwrap_or("");
    let seen = seen.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
    serde_json::from_str(&seen).unwrap_or_else(|error| {
        panic!("the probe saw nothing ({error}): '{seen}'\n{}", String::from_utf8_lossy(&output.stderr))
    })
}
