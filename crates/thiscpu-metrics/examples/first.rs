//! The example of the project's README.

use metrics::{counter, gauge};

fn main() -> Result<(), thiscpu_metrics::Error> {
    // Bytes in and out are read at one instant in each scrape.
    let registry = thiscpu_metrics::Registry::builder()
        .group("traffic", &["bytes_in_total", "bytes_out_total"])
        .build()?;
    registry.install_recorder()?;
    let _endpoint = registry.serve("127.0.0.1:0")?; // GET /metrics, until it is dropped

    // Anywhere, by macros of the `metrics` crate; handles are faster than looking the name up each time.
    let (bytes_in, bytes_out) = (counter!("bytes_in_total"), counter!("bytes_out_total"));
    gauge!("connections").increment(1.0);
    bytes_in.increment(1500);
    bytes_out.increment(64);
    print!("{}", registry.render());
    Ok(())
}
