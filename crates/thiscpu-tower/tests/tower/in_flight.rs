//! Requests counted in accounts, without a server.

use thiscpu::{Account, Ledger};
use thiscpu_tower::InFlightLayer;
use tower::{Layer, Service};

use crate::common::{Endless, Scripted, assert_panics, now, poll_ready, start};

/// A request that names its account.
type Request = Option<Account<2>>;

fn account_of(request: &Request) -> Option<Account<2>> {
    request.clone()
}

#[test]
fn requests_are_counted_by_account() {
    let ledger = Ledger::new();
    let (acme, other) = (ledger.open(), ledger.open());
    let mut service = InFlightLayer::new(1, account_of).layer(Endless);
    let first = start(&mut service, Some(acme.clone())).unwrap();
    let _second = start(&mut service.clone(), Some(acme.clone())).unwrap();
    let _third = start(&mut service, Some(other.clone())).unwrap();
    assert_eq!((acme.snapshot(), other.snapshot()), ([0, 2], [0, 1]));
    drop(first);
    assert_eq!((acme.snapshot(), other.snapshot()), ([0, 1], [0, 1]));
}

#[test]
fn request_without_account_is_served_uncounted() {
    let ledger = Ledger::new();
    let acme = ledger.open();
    let mut service = InFlightLayer::new(0, account_of).layer(Scripted::default());
    now(service.call(None)).unwrap();
    assert_eq!(acme.snapshot(), [0, 0]);
}

#[test]
fn request_is_counted_until_it_ends() {
    for fails_call in [false, true] {
        let account = Ledger::new().open();
        let layer = InFlightLayer::new(0, account_of);
        let mut service = layer.layer(Scripted { fails_call, ..Scripted::default() });
        let mut response = Box::pin(service.call(Some(account.clone())));
        assert_eq!(account.sum(0), 1);
        assert_eq!(now(response.as_mut()).is_err(), fails_call);
        assert_eq!(account.sum(0), 0);
    }
}

#[test]
fn panic_of_inner_call_ends_request() {
    let account = Ledger::new().open();
    let layer = InFlightLayer::new(0, account_of);
    let mut service = layer.layer(Scripted { panics: true, ..Scripted::default() });
    assert_panics(|| service.call(Some(account.clone())));
    assert_eq!(account.sum(0), 0);
}

#[test]
fn request_keeps_account_open() {
    let ledger = Ledger::new();
    let account = ledger.open();
    let mut service = InFlightLayer::new(0, account_of).layer(Endless);
    let response = start(&mut service, Some(account.clone())).unwrap();
    drop(account);
    assert_eq!(ledger.len(), 1);
    drop(response);
    assert_eq!(ledger.len(), 0);
}

#[test]
fn wrong_index_is_refused_at_once() {
    assert_panics(|| InFlightLayer::new(2, account_of));
}

#[test]
fn service_is_ready_when_inner_service_is() {
    let layer = InFlightLayer::new(0, account_of);
    let mut service = layer.layer(Scripted { is_pending: true, ..Scripted::default() });
    assert!(poll_ready::<Request, _>(&mut service).is_pending());
}
