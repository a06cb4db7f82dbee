//! Every contender's guarantee: a request waits, or is refused, only while the limit is reached.

use std::{
    pin::pin,
    task::{Context, Poll, Waker},
};

use super::{Contender, Inner, Limited, request};

/// Sends a request while another one is in progress, and then again. Returns what they did.
fn second_request<S: Limited>(service: &S) -> [Poll<bool>; 2] {
    let mut context = Context::from_waker(Waker::noop());
    let (mut first, mut second) = (pin!(request(service)), pin!(request(service)));
    assert_eq!(first.as_mut().poll(&mut context), Poll::Pending);
    let during = second.as_mut().poll(&mut context);
    assert_eq!(first.poll(&mut context), Poll::Ready(true));
    let mut third = pin!(request(service));
    let after = match during {
        Poll::Pending => second.as_mut().poll(&mut context),
        Poll::Ready(_) => third.as_mut().poll(&mut context),
    };
    // The inner service yields once.
    assert_eq!(after, Poll::Pending);
    let done = match during {
        Poll::Pending => second.poll(&mut context),
        Poll::Ready(_) => third.poll(&mut context),
    };
    [during, done]
}

fn waiting_service_waits_at_limit<C: Contender>() {
    let service = C::waiting(1, Inner { yields: true });
    assert_eq!(second_request(&service), [Poll::Pending, Poll::Ready(true)]);
}

fn shedding_service_refuses_at_limit<C: Contender>() {
    let service = C::shedding(1, Inner { yields: true });
    assert_eq!(second_request(&service), [Poll::Ready(false), Poll::Ready(true)]);
}

test_all!(waiting_service_waits_at_limit shedding_service_refuses_at_limit);
