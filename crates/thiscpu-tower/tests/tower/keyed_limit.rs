//! The limit of each key, without a server.

use std::convert::Infallible;
use std::sync::Arc;

use thiscpu_tower::{KeyedBudgets, KeyedLimitLayer};
use tower::{Layer, Service, ServiceExt, service_fn};

use crate::common::{Endless, Peak, Scripted, assert_panics, now, refusal, start};

/// The most keys that may exist while all of them are idle.
const IDLE_MAX: usize = 2_048;

fn own(key: &u64) -> u64 {
    *key
}

#[test]
fn limit_is_that_of_each_key() {
    let layer = KeyedLimitLayer::new(2, own);
    let mut service = layer.layer(Endless);
    let first = start(&mut service, 7).unwrap();
    let _second = start(&mut service, 7).unwrap();
    assert_eq!(refusal(start(&mut service, 7)), (0, 2));
    let _other = start(&mut service, 8).unwrap();
    let budgets = layer.budgets();
    assert_eq!([7, 8, 9].map(|key| budgets.acquired(&key)), [2, 1, 0]);
    assert_eq!((budgets.acquired_by_all(), budgets.refused().sum()), (3, 1));
    drop(first);
    let _third = start(&mut service, 7).unwrap();
    refusal(start(&mut service, 7));
}

#[test]
fn services_and_layers_share_budgets() {
    let layer = KeyedLimitLayer::new(1, own);
    let mut service = layer.layer(Endless);
    let _request = start(&mut service, 7).unwrap();
    refusal(start(&mut service.clone(), 7));
    refusal(start(&mut layer.clone().layer(Endless), 7));
    let other = KeyedLimitLayer::with_budgets(layer.budgets().clone(), |key: &u32| (*key).into());
    refusal(start(&mut other.layer(Endless), 7_u32));
}

#[test]
fn requests_give_units_back_when_they_end() {
    let budgets = Arc::new(KeyedBudgets::new(1));
    let layer = KeyedLimitLayer::with_budgets(budgets.clone(), own);
    for fails_call in [false, true] {
        let mut service = layer.layer(Scripted { fails_call, ..Scripted::default() });
        assert_eq!(now(service.call(7)).is_err(), fails_call);
        assert_eq!(budgets.acquired(&7), 0);
    }
    let mut service = layer.layer(Scripted { panics: true, ..Scripted::default() });
    assert_panics(|| service.call(7));
    drop(start(&mut layer.layer(Endless), 7).unwrap());
    assert_eq!(budgets.acquired(&7), 0);
}

#[test]
fn idle_keys_are_removed_while_keys_are_added() {
    let layer = KeyedLimitLayer::new(1, own);
    let mut service = layer.layer(Endless);
    let mut most = 0;
    for key in 0..50_000 {
        drop(start(&mut service, key).unwrap());
        most = most.max(layer.budgets().keys());
    }
    assert!((1..=IDLE_MAX).contains(&most), "{most} keys");
}

#[test]
fn keys_in_use_outlive_idle_keys() {
    let layer = KeyedLimitLayer::new(1, own);
    let mut service = layer.layer(Endless);
    let held: Vec<_> = (0..100).map(|key| start(&mut service, key).unwrap()).collect();
    for key in 100..10_000 {
        drop(start(&mut service, key).unwrap());
    }
    for key in 0..100 {
        refusal(start(&mut service, key));
    }
    drop(held);
    assert_eq!(layer.budgets().acquired_by_all(), 0);
    (0..100).for_each(|key| drop(start(&mut service, key).unwrap()));
}

#[test]
fn idle_keys_are_removed_on_request() {
    let layer = KeyedLimitLayer::new(1, own);
    let mut service = layer.layer(Endless);
    let mut held: Vec<_> = (0..10).map(|key| start(&mut service, key).unwrap()).collect();
    held.truncate(3);
    assert_eq!(layer.budgets().remove_idle(), 7);
    assert_eq!((layer.budgets().keys(), layer.budgets().acquired_by_all()), (3, 3));
    refusal(start(&mut service, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn limits_hold_while_keys_are_removed() {
    const KEYS: usize = 4;
    let peaks = Arc::new([(); KEYS].map(|()| Arc::new(Peak::default())));
    let layer = KeyedLimitLayer::new(2, |key: &usize| *key);
    let inner = service_fn({
        let peaks = peaks.clone();
        move |key: usize| {
            let peaks = peaks.clone();
            async move {
                let _entry = peaks[key].clone().enter();
                tokio::task::yield_now().await;
                Ok::<_, Infallible>(())
            }
        }
    });
    let service = layer.layer(inner);
    let budgets = layer.budgets().clone();
    let sweeper = tokio::spawn(async move {
        let mut removed = 0;
        for _ in 0..20_000 {
            removed += budgets.remove_idle();
            tokio::task::yield_now().await;
        }
        removed
    });
    let tasks: Vec<_> = (0..16)
        .map(|task| {
            let service = service.clone();
            tokio::spawn(async move {
                for i in 0..2_000 {
                    // A refusal is fine: only the peaks count.
                    let _ = service.clone().oneshot((task + i) % KEYS).await;
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let removed = sweeper.await.unwrap();
    assert!(peaks.iter().all(|peak| (1..=2).contains(&peak.most())));
    assert!(removed > 0);
    assert_eq!(layer.budgets().acquired_by_all(), 0);
}
