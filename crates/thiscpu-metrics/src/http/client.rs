//! Serves one connection: a request, an answer, and the end.

use std::{
    convert::Infallible,
    future::poll_fn,
    pin::{Pin, pin},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    task::Poll,
};

use http_body_util::Full;
use hyper::{
    Method, Request, Response, StatusCode,
    body::{Bytes, Incoming},
    header::{
        ACCEPT, ACCEPT_ENCODING, ALLOW, CONTENT_ENCODING, CONTENT_TYPE, HeaderName, HeaderValue,
        VARY,
    },
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::{Instant, sleep_until, timeout},
};

use super::{
    Limits,
    connections::Connection,
    scraper::{Scraper, Variant},
};
use crate::media::{self, Format};

/// The largest size of a request's head, in bytes.
const HEAD_MAX: usize = 16 * 1024;

/// The media type of answers other than scrapes.
const PLAIN_TEXT: &str = "text/plain; charset=utf-8";

type Answer = Response<Full<Bytes>>;

/// How the service of a connection ended.
enum Outcome {
    /// The answer is written, or the client has gone.
    Served,
    Late,
    Displaced,
}

/// Serves one connection, from its request to its end.
pub(super) async fn serve(
    stream: TcpStream,
    connection: Connection,
    scraper: Scraper,
    limits: Limits,
) {
    let accepted = Instant::now();
    let has_asked = AtomicBool::new(false);
    let service = service_fn(|request: Request<Incoming>| {
        has_asked.store(true, Relaxed);
        let answer = answer(request, &connection, &scraper);
        let answer = Box::pin(async { Ok::<_, Infallible>(answer.await) });
        answer as Pin<Box<dyn Future<Output = _> + Send + '_>>
    });
    let mut http = http1::Builder::new()
        .keep_alive(false)
        // A client may say that it sends nothing more, and wait for its answer.
        .half_close(true)
        .header_read_timeout(None)
        .max_header_size(HEAD_MAX)
        .max_buf_size(2 * HEAD_MAX)
        .serve_connection(TokioIo::new(stream), service);
    let outcome = {
        let mut displaced = pin!(connection.displaced());
        let mut request_is_late = pin!(sleep_until(accepted + limits.request_time));
        let mut answer_is_late = pin!(sleep_until(accepted + limits.connection_time));
        poll_fn(|context| {
            // Errors are the client's: it went away, or hyper has answered what is wrong.
            if http.poll_without_shutdown(context).is_ready() {
                return Poll::Ready(Outcome::Served);
            }
            if displaced.as_mut().poll(context).is_ready() {
                return Poll::Ready(Outcome::Displaced);
            }
            // Relaxed: this task alone uses the flag.
            let late =
                if has_asked.load(Relaxed) { &mut answer_is_late } else { &mut request_is_late };
            late.as_mut().poll(context).map(|()| Outcome::Late)
        })
        .await
    };
    let stream = http.into_parts().io.into_inner();
    match outcome {
        Outcome::Served => {
            connection.end_answer();
            end(stream, &connection, limits).await;
        }
        // An answer has begun. Its length shows the client that it is incomplete.
        _ if has_asked.load(Relaxed) => {}
        Outcome::Late => refuse(&stream, StatusCode::REQUEST_TIMEOUT),
        Outcome::Displaced => refuse(&stream, StatusCode::SERVICE_UNAVAILABLE),
    }
}

/// Answers a client whose request is incomplete, as far as this is possible without waiting.
fn refuse(stream: &TcpStream, status: StatusCode) {
    let answer = format!("HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: 0\r\n\r\n");
    // The client may have gone.
    let _ = stream.try_write(answer.as_bytes());
}

/// Ends a connection.
///
/// Closing a socket with unread bytes, such as the body of a request, would reset the connection,
/// and the client could lose the answer. So this reads what the client still sends.
async fn end(mut stream: TcpStream, connection: &Connection, limits: Limits) {
    let end = async {
        let mut rest = [0; 4096];
        if stream.shutdown().await.is_ok() {
            while stream.read(&mut rest).await.is_ok_and(|bytes| bytes > 0) {}
        }
    };
    let mut end = pin!(timeout(limits.drain_time, end));
    let mut displaced = pin!(connection.displaced());
    poll_fn(|context| match displaced.as_mut().poll(context) {
        Poll::Ready(()) => Poll::Ready(()),
        Poll::Pending => end.as_mut().poll(context).map(|_| ()),
    })
    .await;
}

async fn answer(request: Request<Incoming>, connection: &Connection, scraper: &Scraper) -> Answer {
    let method = request.method();
    if request.uri().path() != "/metrics" {
        return plain(StatusCode::NOT_FOUND, "not found: only /metrics exists\n");
    }
    if method != Method::GET && method != Method::HEAD {
        let body = "method not allowed: use GET or HEAD\n";
        let mut answer = plain(StatusCode::METHOD_NOT_ALLOWED, body);
        answer.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return answer;
    }
    let variant = variant(&request);
    connection.begin_scrape();
    let scrape = scraper.scrape(variant).await;
    connection.begin_answer(scrape.number);
    match scrape.text {
        Some(text) => {
            let mut answer = with_type(variant.format.content_type(), text);
            let headers = answer.headers_mut();
            headers.insert(VARY, HeaderValue::from_static("accept, accept-encoding"));
            if variant.is_gzip {
                headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
            }
            answer
        }
        None => {
            let body = "cannot read the values: see the program's standard error\n";
            plain(StatusCode::INTERNAL_SERVER_ERROR, body)
        }
    }
}

/// Returns which text the client asks for.
fn variant(request: &Request<Incoming>) -> Variant {
    // A header may have several lines.
    let all = |name: HeaderName| {
        let lines = request.headers().get_all(name).into_iter();
        lines.filter_map(|line| line.to_str().ok()).collect::<Vec<_>>().join(",")
    };
    let format = Format::negotiate(&all(ACCEPT));
    Variant { format, is_gzip: media::accepts_gzip(&all(ACCEPT_ENCODING)) }
}

fn plain(status: StatusCode, body: &'static str) -> Answer {
    let mut answer = with_type(PLAIN_TEXT, Bytes::from_static(body.as_bytes()));
    *answer.status_mut() = status;
    answer
}

fn with_type(content_type: &'static str, body: Bytes) -> Answer {
    let mut answer = Response::new(Full::from(body));
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    answer
}
