//! The layers in servers of axum and hyper: real requests over loopback.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::Body;
use axum::error_handling::HandleErrorLayer;
use axum::http::{Request, Response, StatusCode};
use axum::routing::get;
use axum::{BoxError, Router};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty, Full};
use hyper::body::{Frame, Incoming};
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use thiscpu::{Account, Ledger};
use thiscpu_tower::{
    ConcurrencyLimitLayer, InFlightLayer, KeyedLimitLayer, LoadShedLayer, Overloaded,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tower::{Layer, ServiceBuilder, service_fn};

use crate::common::{Peak, until};

/// Handlers that wait until the test lets them go on.
#[derive(Clone)]
struct Handlers {
    peak: Arc<Peak>,
    go_on: Arc<Semaphore>,
}

impl Handlers {
    fn new() -> Handlers {
        Handlers { peak: Arc::default(), go_on: Arc::new(Semaphore::new(0)) }
    }

    async fn handle(self) -> &'static str {
        let _entry = self.peak.enter();
        let _permit = self.go_on.acquire().await.unwrap();
        "done"
    }

    /// Returns a route that waits.
    fn route<S: Clone + Send + Sync + 'static>(&self) -> axum::routing::MethodRouter<S> {
        let handlers = self.clone();
        get(move || handlers.clone().handle())
    }
}

/// Answers errors of the layers with 503, and with the error as text.
async fn refuse(error: BoxError) -> (StatusCode, String) {
    (StatusCode::SERVICE_UNAVAILABLE, error.to_string())
}

/// Serves on a port of loopback until the test ends.
async fn serve(router: Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async { axum::serve(listener, router).await.unwrap() });
    address
}

/// Sends a request, for which `headers` has more lines.
async fn send(address: SocketAddr, path: &str, headers: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let head = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{headers}\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    stream
}

/// Reads a response to its end, and returns its status and the rest.
async fn read(mut stream: TcpStream) -> (u16, String) {
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    let status = text.split(' ').nth(1).and_then(|word| word.parse().ok());
    (status.unwrap_or_else(|| panic!("no status in {text:?}")), text)
}

#[tokio::test]
async fn concurrency_limit_holds_for_all_routes_and_connections() {
    let (layer, handlers) = (ConcurrencyLimitLayer::new(3), Handlers::new());
    let limit = ServiceBuilder::new().layer(HandleErrorLayer::new(refuse)).layer(layer.clone());
    let router = Router::new().route("/a", handlers.route()).route("/b", handlers.route());
    let address = serve(router.layer(limit)).await;
    let mut streams = Vec::new();
    for i in 0..10 {
        streams.push(send(address, ["/a", "/b"][i % 2], "").await);
    }
    let budget = layer.budget();
    until("3 requests run and 7 wait", || budget.acquired() == 3 && budget.waiters() == 7).await;
    until("3 handlers run", || handlers.peak.now() == 3).await;
    handlers.go_on.add_permits(1);
    for stream in streams {
        assert_eq!(read(stream).await.0, 200);
    }
    assert_eq!(handlers.peak.most(), 3);
    until("all units are back", || budget.acquired() == 0).await;
}

#[tokio::test]
async fn canceled_requests_give_units_back() {
    let (layer, handlers) = (ConcurrencyLimitLayer::new(1), Handlers::new());
    let limit = ServiceBuilder::new().layer(HandleErrorLayer::new(refuse)).layer(layer.clone());
    let address = serve(Router::new().route("/", handlers.route()).layer(limit)).await;
    let budget = layer.budget();
    let (running, waiting) = (send(address, "/", "").await, send(address, "/", "").await);
    until("a request runs and one waits", || (budget.acquired(), budget.waiters()) == (1, 1)).await;
    // Of the two, either runs. The waiting one is granted the unit, or leaves the queue.
    drop(running);
    until("no request waits", || budget.waiters() == 0).await;
    assert_eq!(budget.acquired(), 1);
    drop(waiting);
    until("the unit is back", || budget.acquired() == 0).await;
    handlers.go_on.add_permits(1);
    assert_eq!(read(send(address, "/", "").await).await.0, 200);
    assert_eq!(handlers.peak.most(), 1);
}

#[tokio::test]
async fn shed_requests_are_answered_with_available_units() {
    let handlers = Handlers::new();
    let bytes = |request: &Request<Body>| {
        let length = request.headers().get("x-units").and_then(|units| units.to_str().ok());
        length.and_then(|units| units.parse().ok()).unwrap_or(1)
    };
    let layer = LoadShedLayer::new(100).cost(bytes);
    let limit = ServiceBuilder::new().layer(HandleErrorLayer::new(refuse)).layer(layer.clone());
    let address = serve(Router::new().route("/", handlers.route()).layer(limit)).await;
    let first = send(address, "/", "x-units: 93\r\n").await;
    until("the first request runs", || layer.budget().acquired() == 93).await;
    let (status, text) = read(send(address, "/", "x-units: 8\r\n").await).await;
    assert_eq!(status, 503);
    assert!(text.ends_with("only 7 of 100 units are available; retry later"), "{text}");
    let second = send(address, "/", "x-units: 7\r\n").await;
    until("the second request runs", || layer.budget().acquired() == 100).await;
    handlers.go_on.add_permits(1);
    assert_eq!((read(first).await.0, read(second).await.0), (200, 200));
    until("all units are back", || layer.budget().acquired() == 0).await;
    assert_eq!(layer.refused().sum(), 1);
}

#[tokio::test]
async fn layers_of_router_limit_waiting_requests() {
    let (running, admitted) = (ConcurrencyLimitLayer::new(1), LoadShedLayer::new(3));
    let handlers = Handlers::new();
    let router = Router::new()
        .route("/", handlers.route())
        .layer(ServiceBuilder::new().layer(HandleErrorLayer::new(refuse)).layer(running.clone()))
        .layer(ServiceBuilder::new().layer(HandleErrorLayer::new(refuse)).layer(admitted.clone()));
    let address = serve(router).await;
    let mut streams = Vec::new();
    for _ in 0..3 {
        streams.push(send(address, "/", "").await);
    }
    let budget = running.budget();
    until("1 request runs and 2 wait", || (budget.acquired(), budget.waiters()) == (1, 2)).await;
    assert_eq!(read(send(address, "/", "").await).await.0, 503);
    handlers.go_on.add_permits(1);
    for stream in streams {
        assert_eq!(read(stream).await.0, 200);
    }
    assert_eq!((handlers.peak.most(), admitted.refused().sum()), (1, 1));
}

fn tenant(request: &Request<Body>) -> Option<String> {
    Some(request.headers().get("tenant")?.to_str().ok()?.to_owned())
}

#[tokio::test]
async fn tenants_are_limited_separately() {
    let (layer, handlers) = (KeyedLimitLayer::new(2, tenant), Handlers::new());
    let too_many = async |error: BoxError| match error.is::<Overloaded>() {
        true => StatusCode::TOO_MANY_REQUESTS,
        false => StatusCode::INTERNAL_SERVER_ERROR,
    };
    let limit = ServiceBuilder::new().layer(HandleErrorLayer::new(too_many)).layer(layer.clone());
    let address = serve(Router::new().route("/", handlers.route()).layer(limit)).await;
    let acme = ["tenant: acme\r\n"; 2];
    let mut running = Vec::new();
    for headers in [acme[0], acme[1], "tenant: other\r\n", ""] {
        running.push(send(address, "/", headers).await);
    }
    let acquired = |tenant: Option<&str>| layer.budgets().acquired(&tenant.map(str::to_owned));
    until("all run", || [Some("acme"), Some("other"), None].map(acquired) == [2, 1, 1]).await;
    assert_eq!(read(send(address, "/", acme[0]).await).await.0, 429);
    running.push(send(address, "/", "tenant: other\r\n").await);
    until("another runs", || acquired(Some("other")) == 2).await;
    handlers.go_on.add_permits(1);
    for stream in running {
        assert_eq!(read(stream).await.0, 200);
    }
    until("all units are back", || layer.budgets().acquired_by_all() == 0).await;
    assert_eq!(layer.budgets().remove_idle(), 3);
}

#[tokio::test]
async fn tenants_requests_are_counted_in_ledger() {
    let (ledger, handlers) = (Ledger::<1>::new(), Handlers::new());
    let acme = ledger.open();
    let account_of = {
        let acme = acme.clone();
        move |request: &Request<Body>| -> Option<Account<1>> {
            (tenant(request)? == "acme").then(|| acme.clone())
        }
    };
    let count = InFlightLayer::new(0, account_of);
    // The layer adds no error, so axum takes it as it is.
    let address = serve(Router::new().route("/", handlers.route()).layer(count)).await;
    let mut streams = Vec::new();
    for headers in ["tenant: acme\r\n", "tenant: other\r\n", "tenant: acme\r\n"] {
        streams.push(send(address, "/", headers).await);
    }
    until("all run", || handlers.peak.now() == 3).await;
    assert_eq!(acme.sum(0), 2);
    // A client that goes away.
    drop(streams.pop());
    until("one was canceled", || acme.sum(0) == 1).await;
    handlers.go_on.add_permits(1);
    for stream in streams {
        assert_eq!(read(stream).await.0, 200);
    }
    until("all have ended", || acme.sum(0) == 0).await;
}

/// A body of one frame, which comes when the semaphore has a permit.
struct Late(Option<Pin<Box<dyn Future<Output = ()> + Send>>>);

impl hyper::body::Body for Late {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let Some(wait) = &mut self.0 else { return Poll::Ready(None) };
        std::task::ready!(wait.as_mut().poll(context));
        self.0 = None;
        Poll::Ready(Some(Ok(Frame::data(Bytes::from("late")))))
    }
}

#[tokio::test]
async fn streamed_body_holds_unit_until_it_has_ended() {
    let (layer, go_on) = (ConcurrencyLimitLayer::new(2), Arc::new(Semaphore::new(0)));
    let body = {
        let go_on = go_on.clone();
        move || {
            let go_on = go_on.clone();
            Late(Some(Box::pin(async move { go_on.acquire().await.unwrap().forget() })))
        }
    };
    let limit = ServiceBuilder::new()
        .layer(HandleErrorLayer::new(refuse))
        .layer(layer.clone().hold_until_body_end());
    let router = Router::new().route("/", get(async move || Response::new(Body::new(body()))));
    let address = serve(router.layer(limit)).await;
    let mut streams = Vec::new();
    for _ in 0..2 {
        let mut stream = send(address, "/", "").await;
        // The head of the response is here, so the handler has returned.
        let mut head = [0; 12];
        stream.read_exact(&mut head).await.unwrap();
        assert_eq!(&head, b"HTTP/1.1 200");
        streams.push(stream);
    }
    let budget = layer.budget();
    assert_eq!(budget.acquired(), 2);
    // A client that goes away in the middle of a body.
    drop(streams.pop());
    until("its unit is back", || budget.acquired() == 1).await;
    go_on.add_permits(1);
    let mut text = String::new();
    streams.remove(0).read_to_string(&mut text).await.unwrap();
    assert!(text.contains("late"), "{text}");
    until("all units are back", || budget.acquired() == 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hyper_connections_share_limit_of_layer() {
    let (layer, peak) = (ConcurrencyLimitLayer::new(2), Arc::new(Peak::default()));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = (layer.clone(), peak.clone());
    tokio::spawn(async move {
        let (layer, peak) = server;
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let peak = peak.clone();
            let inner = service_fn(move |_: Request<Incoming>| {
                let peak = peak.clone();
                async move {
                    let _entry = peak.enter();
                    tokio::task::yield_now().await;
                    Ok::<_, Infallible>(Response::new(Full::new(Bytes::from("done"))))
                }
            });
            // A service for each connection.
            let service = TowerToHyperService::new(layer.layer(inner));
            let connection = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service);
            tokio::spawn(connection);
        }
    });
    let clients: Vec<_> = (0..16)
        .map(|_| {
            tokio::spawn(async move {
                let stream = TokioIo::new(TcpStream::connect(address).await.unwrap());
                let (mut client, connection) =
                    hyper::client::conn::http1::handshake(stream).await.unwrap();
                tokio::spawn(connection);
                for _ in 0..50 {
                    client.ready().await.unwrap();
                    let request = Request::get("/").header("host", "x").body(Empty::<Bytes>::new());
                    let response = client.send_request(request.unwrap()).await.unwrap();
                    let body = response.into_body().collect().await.unwrap().to_bytes();
                    assert_eq!(body, "done");
                }
            })
        })
        .collect();
    for client in clients {
        client.await.unwrap();
    }
    assert!((1..=2).contains(&peak.most()), "{}", peak.most());
    until("all units are back", || layer.budget().acquired() == 0).await;
}
