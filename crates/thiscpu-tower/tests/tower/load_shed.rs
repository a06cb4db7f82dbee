//! Load shedding, without a server.

use std::sync::Arc;

use thiscpu_tower::{Closed, LoadShedLayer};
use tower::{Layer, Service};

use crate::common::{Endless, Scripted, assert_panics, now, poll_ready, refusal, start};

#[test]
fn refused_request_learns_available_units() {
    let layer = LoadShedLayer::new(100).cost(|units: &u64| *units);
    let mut service = layer.layer(Endless);
    let first = start(&mut service, 30).unwrap();
    let _second = start(&mut service, 60).unwrap();
    assert_eq!(refusal(start(&mut service, 11)), (10, 100));
    assert_eq!(layer.budget().acquired(), 90);
    drop(first);
    assert_eq!(layer.budget().acquired(), 60);
    assert_eq!(refusal(start(&mut service, 101)), (40, 100));
    layer.budget().set_limit(70);
    assert_eq!(refusal(start(&mut service, 11)), (10, 70));
    let _third = start(&mut service, 10).unwrap();
    assert_eq!(layer.refused().sum(), 3);
}

#[test]
fn request_costs_one_unit_by_default() {
    let layer = LoadShedLayer::new(2);
    let mut service = layer.layer(Endless);
    let _admitted = [(); 2].map(|()| start(&mut service, ()).unwrap());
    assert_eq!(refusal(start(&mut service, ())), (0, 2));
}

#[test]
fn limit_of_zero_admits_only_requests_without_cost() {
    let layer = LoadShedLayer::new(0).cost(|units: &u64| *units);
    let mut service = layer.layer(Endless);
    assert_eq!(refusal(start(&mut service, 1)), (0, 0));
    start(&mut service, 0).unwrap();
}

#[test]
fn ready_service_holds_no_unit() {
    let layer = LoadShedLayer::new(1);
    let mut services = [(); 2].map(|()| layer.layer(Endless));
    assert!(services.iter_mut().all(|service| poll_ready::<(), _>(service).is_ready()));
    assert_eq!(layer.budget().acquired(), 0);
}

#[test]
fn services_and_clones_share_the_budget() {
    let layer = LoadShedLayer::new(1);
    let mut service = layer.clone().layer(Endless);
    let _admitted = start(&mut service, ()).unwrap();
    refusal(start(&mut service.clone(), ()));
    refusal(start(&mut layer.layer(Endless), ()));
    let same_budget = LoadShedLayer::with_budget(Arc::clone(layer.budget()));
    refusal(start(&mut same_budget.layer(Endless), ()));
    assert_eq!((layer.refused().sum(), same_budget.refused().sum()), (2, 1));
}

#[test]
fn refusal_does_not_call_inner_service() {
    // It would panic.
    let layer = LoadShedLayer::new(0);
    let inner = Scripted { panics: true, ..Scripted::default() };
    refusal(now(layer.layer(inner).call(())));
}

#[test]
fn units_are_given_back_when_request_ends() {
    for fails_call in [false, true] {
        let layer = LoadShedLayer::new(1);
        let mut service = layer.layer(Scripted { fails_call, ..Scripted::default() });
        let mut response = Box::pin(service.call(()));
        assert_eq!(layer.budget().acquired(), 1);
        assert_eq!(now(response.as_mut()).is_err(), fails_call);
        assert_eq!(layer.budget().acquired(), 0);
    }
}

#[test]
fn panic_of_inner_call_gives_units_back() {
    let layer = LoadShedLayer::new(1);
    let mut service = layer.layer(Scripted { panics: true, ..Scripted::default() });
    assert_panics(|| service.call(()));
    assert_eq!(layer.budget().acquired(), 0);
}

#[test]
fn closed_budget_refuses_requests() {
    let layer = LoadShedLayer::new(1);
    let mut service = layer.layer(Endless);
    layer.budget().close();
    assert!(start(&mut service, ()).unwrap_err().is::<Closed>());
}

#[test]
fn service_is_ready_when_inner_service_is() {
    let layer = LoadShedLayer::new(1);
    let mut service = layer.layer(Scripted { is_pending: true, ..Scripted::default() });
    assert!(poll_ready::<(), _>(&mut service).is_pending());
    let mut service = layer.layer(Scripted { fails_poll: true, ..Scripted::default() });
    assert!(matches!(poll_ready::<(), _>(&mut service), std::task::Poll::Ready(Err(_))));
}

#[test]
fn errors_say_what_failed_and_what_to_do() {
    let mut service = LoadShedLayer::new(0).layer(Endless);
    let error = start(&mut service, ()).unwrap_err();
    let said = "request refused: only 0 of 0 units are available; retry later";
    assert_eq!(error.to_string(), said);
}
