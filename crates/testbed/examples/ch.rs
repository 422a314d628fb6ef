//! Prints the configurations of workload W.

use baton_policy::rules::Rule;
use baton_testbed::measure::median_us;
use baton_testbed::world::{Config, run};

fn main() {
    for (places, host_first, load_control) in
        [(0, false, false), (256, false, false), (1024, false, false), (1024, true, false), (4096, true, false), (4096, true, true)]
    {
        let began = std::time::Instant::now();
        let config = Config { places, host_first, load_control, ..Config::baseline() };
        let m = run(&config, &mut Rule::FirstCome);
        println!("W-{places}-{host_first}-{load_control}: {:.0} req/s, {:.0} pkt/s, nic idle {:.0}, host idle {:.0}, stack {:.0}, nic packets {:.0} %, conns {:.0} %, delays {:.1} {:.1} us, response {:.0} ms, dropped {}, {:.0} Mb/s, span {:.2} s; {:.0} pkt/s real",
            m.request_rate(), m.packet_rate(), m.nic_idle(), m.host_idle(), m.stack(), m.nic_packet_share(), m.handed_off_share(), median_us(&m.send_delays), median_us(&m.receive_delays), m.response_ms(), m.dropped, m.content_rate(), m.span_ns as f64 / 1e9, 1e6 / began.elapsed().as_secs_f64());
    }
}
