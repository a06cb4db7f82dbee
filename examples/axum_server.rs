//! An HTTP server whose requests are counted and limited.
//!
//! ```sh
//! cargo run --release -p thiscpu-examples --example axum_server -- 127.0.0.1:3000
//! curl http://127.0.0.1:3000/            # works while at most 64 MiB of bodies are in memory
//! curl http://127.0.0.1:3000/metrics     # exact counts, in a format of Prometheus
//! ```

use std::sync::Arc;

use anyhow::{Context as _, Result};
use axum::{
    Router,
    body::Bytes,
    extract::State,
    http::{HeaderMap, StatusCode, header},
    response::IntoResponse,
    routing::{get, post},
};
use metrics::{counter, gauge};
use thiscpu::Budget;
use thiscpu_metrics::{Format, Registry};

/// Bytes of request bodies that may be in memory at once.
static BODY_BYTES: Budget = Budget::new(64 << 20);

/// The most that one request may send.
const BODY_BYTES_MAX: usize = 1 << 20;

async fn hello() -> &'static str {
    counter!("requests_total", "route" => "hello").increment(1);
    "hello\n"
}

/// Answers with the length of the body, or with 503 while too many bytes are in memory.
async fn upload(headers: HeaderMap, body: axum::body::Body) -> Result<String, StatusCode> {
    counter!("requests_total", "route" => "upload").increment(1);
    let length = headers
        .get(header::CONTENT_LENGTH)
        .and_then(|length| length.to_str().ok()?.parse::<usize>().ok())
        .ok_or(StatusCode::LENGTH_REQUIRED)?;
    if length > BODY_BYTES_MAX {
        return Err(StatusCode::PAYLOAD_TOO_LARGE);
    }
    // The units go back when the lease is dropped, on any path out of this function.
    let _lease = BODY_BYTES.lease(length as u64).map_err(|_exhausted| {
        counter!("refused_total").increment(1);
        StatusCode::SERVICE_UNAVAILABLE
    })?;
    let bytes: Bytes =
        axum::body::to_bytes(body, length).await.map_err(|_| StatusCode::BAD_REQUEST)?;
    Ok(format!("{} bytes\n", bytes.len()))
}

async fn scrape(State(registry): State<Arc<Registry>>, headers: HeaderMap) -> impl IntoResponse {
    gauge!("body_bytes").set(BODY_BYTES.acquired() as f64);
    let accept = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok());
    let format = Format::negotiate(accept.unwrap_or_default());
    ([(header::CONTENT_TYPE, format.content_type())], registry.render_as(format))
}

#[tokio::main]
async fn main() -> Result<()> {
    let registry = Registry::builder().build()?;
    registry.install_recorder()?;
    let app = Router::new()
        .route("/", get(hello))
        .route("/upload", post(upload))
        .route("/metrics", get(scrape))
        .with_state(Arc::new(registry));
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:3000".to_owned());
    let listener = tokio::net::TcpListener::bind(&address)
        .await
        .with_context(|| format!("cannot listen on {address}"))?;
    println!("listening on http://{}", listener.local_addr()?);
    axum::serve(listener, app)
        .with_graceful_shutdown(async { drop(tokio::signal::ctrl_c().await) })
        .await?;
    Ok(())
}
