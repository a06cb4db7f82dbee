//! Units that are held until the body of a response has ended.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use axum::http::{Request, Response};
use bytes::Bytes;
use http_body_util::{Empty, Full};
use hyper::body::{Body, Frame, SizeHint};
use thiscpu::Ledger;
use thiscpu_tower::{ConcurrencyLimitLayer, InFlightLayer, KeyedLimitLayer, LoadShedLayer};
use tower::{Layer, Service, service_fn};

use crate::common::{now, poll_ready};

/// A body of these frames. It does not know its last frame before that was polled.
#[derive(Default)]
struct Frames(VecDeque<Result<&'static str, &'static str>>);

impl Body for Frames {
    type Data = Bytes;
    type Error = &'static str;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, &'static str>>> {
        let frame = self.0.pop_front();
        Poll::Ready(frame.map(|frame| frame.map(|data| Frame::data(Bytes::from(data)))))
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(17)
    }
}

fn poll_frame<B: Body + Unpin>(body: &mut B) -> Option<Result<Frame<B::Data>, B::Error>> {
    match Pin::new(body).poll_frame(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(frame) => frame,
        Poll::Pending => panic!("the body waits"),
    }
}

/// Returns the response of a service below a layer, whose body is the one given.
fn respond<B, L>(layer: &L, body: B) -> <L::Service as Service<Request<()>>>::Response
where
    L: Layer<tower::util::BoxService<Request<()>, Response<B>, Infallible>>,
    L::Service: Service<Request<()>>,
    B: Body + Send + 'static,
{
    let mut body = Some(body);
    let inner = service_fn(move |_: Request<()>| {
        std::future::ready(Ok(Response::new(body.take().expect("called once"))))
    });
    let mut service = layer.layer(tower::util::BoxService::new(inner));
    assert!(poll_ready(&mut service).is_ready());
    match now(service.call(Request::new(()))) {
        Ok(response) => response,
        Err(_) => panic!("the request failed"),
    }
}

#[test]
fn unit_is_held_until_frame_after_last() {
    let layer = ConcurrencyLimitLayer::new(1).hold_until_body_end();
    let mut body = respond(&layer, Frames([Ok("a"), Ok("b")].into())).into_body();
    for data in ["a", "b"] {
        assert_eq!(layer.budget().acquired(), 1);
        let frame = poll_frame(&mut body).unwrap().unwrap();
        assert_eq!(frame.into_data().unwrap(), data);
    }
    assert_eq!(layer.budget().acquired(), 1);
    assert!(poll_frame(&mut body).is_none());
    assert_eq!(layer.budget().acquired(), 0);
}

#[test]
fn unit_is_held_until_frame_that_ends_body() {
    let layer = ConcurrencyLimitLayer::new(1).hold_until_body_end();
    let mut body = respond(&layer, Full::new(Bytes::from("all"))).into_body();
    assert_eq!(layer.budget().acquired(), 1);
    assert!(poll_frame(&mut body).unwrap().unwrap().is_data());
    assert!(body.is_end_stream());
    assert_eq!(layer.budget().acquired(), 0);
}

#[test]
fn unit_is_held_until_body_fails() {
    let layer = ConcurrencyLimitLayer::new(1).hold_until_body_end();
    let mut body = respond(&layer, Frames([Err("broken")].into())).into_body();
    assert_eq!(layer.budget().acquired(), 1);
    assert_eq!(poll_frame(&mut body).unwrap().unwrap_err(), "broken");
    assert_eq!(layer.budget().acquired(), 0);
}

#[test]
fn unit_is_held_until_body_is_dropped() {
    let layer = ConcurrencyLimitLayer::new(1).hold_until_body_end();
    let response = respond(&layer, Frames::default());
    assert_eq!(layer.budget().acquired(), 1);
    drop(response);
    assert_eq!(layer.budget().acquired(), 0);
}

#[test]
fn empty_body_holds_no_unit() {
    let layer = ConcurrencyLimitLayer::new(1).hold_until_body_end();
    let _response = respond(&layer, Empty::<Bytes>::new());
    assert_eq!(layer.budget().acquired(), 0);
}

#[test]
fn body_reports_size_and_end_of_inner_body() {
    let layer = ConcurrencyLimitLayer::new(3).hold_until_body_end();
    let body = respond(&layer, Frames::default()).into_body();
    assert_eq!((body.size_hint().exact(), body.is_end_stream()), (Some(17), false));
    assert!(respond(&layer, Empty::<Bytes>::new()).into_body().is_end_stream());
}

#[test]
fn every_layer_can_hold_until_body_ends() {
    let shed = LoadShedLayer::new(9).cost(|_: &Request<()>| 5).hold_until_body_end();
    let keyed = KeyedLimitLayer::new(1, |_: &Request<()>| 7).hold_until_body_end();
    let account = Ledger::<1>::new().open();
    let of_request = {
        let account = account.clone();
        move |_: &Request<()>| Some(account.clone())
    };
    let count = InFlightLayer::new(0, of_request).hold_until_body_end();
    let bodies = (
        respond(&shed, Frames::default()),
        respond(&keyed, Frames::default()),
        respond(&count, Frames::default()),
    );
    let held = || (shed.budget().acquired(), keyed.budgets().acquired(&7), account.sum(0));
    assert_eq!(held(), (5, 1, 1));
    drop(bodies);
    assert_eq!(held(), (0, 0, 0));
}

#[test]
fn unit_is_given_back_with_response_by_default() {
    let layer = ConcurrencyLimitLayer::new(1);
    let _response = respond(&layer, Frames::default());
    assert_eq!(layer.budget().acquired(), 0);
}
