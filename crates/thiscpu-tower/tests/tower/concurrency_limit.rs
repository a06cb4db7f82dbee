//! The concurrency limit, without a server.

use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use thiscpu::Budget;
use thiscpu_tower::{BoxError, Closed, ConcurrencyLimit, ConcurrencyLimitLayer};
use tower::{Layer, Service, ServiceExt, service_fn};

use crate::common::{Peak, Scripted, Task, assert_panics, is_ready, now, poll_ready};

/// Returns a layer with this limit, its budget, and a service of it.
fn limited(limit: u64, inner: Scripted) -> (Arc<Budget>, ConcurrencyLimit<Scripted>) {
    let layer = ConcurrencyLimitLayer::new(limit);
    (layer.budget().clone(), layer.layer(inner))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_never_exceed_limit() {
    let (layer, peak) = (ConcurrencyLimitLayer::new(3), Arc::new(Peak::default()));
    let inner = service_fn({
        let peak = peak.clone();
        move |(): ()| {
            let peak = peak.clone();
            async move {
                let _entry = peak.enter();
                tokio::task::yield_now().await;
                Ok::<_, Infallible>(())
            }
        }
    });
    let service = layer.layer(inner);
    let tasks: Vec<_> = (0..64)
        .map(|_| {
            let service = service.clone();
            tokio::spawn(async move {
                for _ in 0..200 {
                    service.clone().oneshot(()).await.unwrap();
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    // More entered at once only if the limit was exceeded.
    assert!((1..=3).contains(&peak.most()), "{}", peak.most());
    assert_eq!(layer.budget().acquired(), 0);
}

#[test]
fn clone_of_ready_service_is_not_ready() {
    let (budget, mut service) = limited(1, Scripted::default());
    assert!(is_ready(&mut service));
    let mut clone = service.clone();
    assert!(!is_ready(&mut clone));
    assert_eq!(budget.acquired(), 1);
    assert_panics(|| clone.call(()));
    assert_eq!(budget.acquired(), 1);
    drop(clone);
    now(service.call(())).unwrap();
    assert_eq!(budget.acquired(), 0);
}

#[test]
fn ready_service_acquires_one_unit_when_polled_again() {
    let (budget, mut service) = limited(5, Scripted::default());
    (0..3).for_each(|_| assert!(is_ready(&mut service)));
    assert_eq!(budget.acquired(), 1);
}

#[test]
fn ready_service_gives_unit_back_when_dropped() {
    let (budget, mut service) = limited(1, Scripted::default());
    assert!(is_ready(&mut service));
    drop(service);
    assert_eq!(budget.available(), 1);
}

#[test]
fn called_service_needs_new_unit() {
    let (budget, mut service) = limited(2, Scripted::default());
    assert!(is_ready(&mut service));
    let _first = service.call(());
    assert_panics(|| service.call(()));
    assert!(is_ready(&mut service));
    assert_eq!(budget.acquired(), 2);
    let _second = service.call(());
    assert!(!is_ready(&mut service));
}

#[test]
fn response_gives_unit_back_when_future_ends() {
    for fails_call in [false, true] {
        let (budget, mut service) = limited(1, Scripted { fails_call, ..Scripted::default() });
        assert!(is_ready(&mut service));
        let mut response = Box::pin(service.call(()));
        assert_eq!(budget.acquired(), 1);
        assert_eq!(now(response.as_mut()).is_err(), fails_call);
        // The future still exists.
        assert_eq!(budget.acquired(), 0);
    }
}

#[test]
fn response_gives_unit_back_when_future_is_dropped() {
    let (budget, mut service) = limited(1, Scripted::default());
    assert!(is_ready(&mut service));
    let response = service.call(());
    assert_eq!(budget.acquired(), 1);
    drop(response);
    assert_eq!(budget.acquired(), 0);
}

#[test]
fn inner_future_is_dropped_before_unit_is_given_back() {
    struct SeesUnit(Arc<Budget>);
    impl Drop for SeesUnit {
        fn drop(&mut self) {
            assert_eq!(self.0.acquired(), 1);
        }
    }
    let layer = ConcurrencyLimitLayer::new(1);
    let budget = layer.budget().clone();
    let mut service = layer.layer(service_fn(|(): ()| {
        let sees_unit = SeesUnit(budget.clone());
        async move {
            let _sees_unit = sees_unit;
            std::future::pending::<Result<(), Infallible>>().await
        }
    }));
    assert!(is_ready(&mut service));
    drop(service.call(()));
    assert_eq!(budget.acquired(), 0);
}

#[test]
fn panic_of_inner_call_gives_unit_back() {
    let (budget, mut service) = limited(1, Scripted { panics: true, ..Scripted::default() });
    assert!(is_ready(&mut service));
    assert_panics(|| service.call(()));
    assert_eq!(budget.acquired(), 0);
}

#[test]
fn error_of_inner_poll_gives_unit_back() {
    let (budget, mut service) = limited(1, Scripted { fails_poll: true, ..Scripted::default() });
    let Poll::Ready(Err(error)) = poll_ready::<(), _>(&mut service) else { panic!("no error") };
    assert_eq!(error.to_string(), "scripted failure");
    assert_eq!(budget.acquired(), 0);
}

#[test]
fn service_keeps_unit_while_inner_service_is_not_ready() {
    let (budget, mut service) = limited(2, Scripted { is_pending: true, ..Scripted::default() });
    (0..2).for_each(|_| assert!(!is_ready(&mut service)));
    assert_eq!(budget.acquired(), 1);
    drop(service);
    assert_eq!(budget.acquired(), 0);
}

#[test]
fn services_of_layer_share_its_budget() {
    let layer = ConcurrencyLimitLayer::new(2);
    let mut services = [&layer, &layer.clone(), &layer].map(|it| it.layer(Scripted::default()));
    let ready = services.each_mut().map(is_ready);
    assert_eq!(ready, [true, true, false]);

    let mut other = ConcurrencyLimitLayer::with_budget(layer.budget().clone());
    assert!(!is_ready(&mut other.layer(Scripted::default())));
    other = ConcurrencyLimitLayer::new(1);
    assert!(is_ready(&mut other.layer(Scripted::default())));
}

#[test]
fn waiting_service_gets_unit_when_request_ends() {
    let (budget, mut service) = limited(1, Scripted::default());
    let mut waiting = service.clone();
    let task = Arc::new(Task::default());
    assert!(is_ready(&mut service));
    let response = service.call(());
    let waker = Waker::from(task.clone());
    let mut poll = || Service::<()>::poll_ready(&mut waiting, &mut Context::from_waker(&waker));
    assert!(poll().is_pending());
    assert_eq!((task.wakes(), budget.waiters()), (0, 1));
    drop(response);
    assert_eq!(task.wakes(), 1);
    assert!(poll().is_ready());
    now(waiting.call(())).unwrap();
    assert_eq!(budget.acquired(), 0);
}

#[test]
fn waiting_service_wakes_task_that_polled_last() {
    let (budget, mut service) = limited(0, Scripted::default());
    let tasks = [(); 2].map(|()| Arc::new(Task::default()));
    for task in &tasks {
        let waker = Waker::from(task.clone());
        let mut context = Context::from_waker(&waker);
        assert!(Service::<()>::poll_ready(&mut service, &mut context).is_pending());
    }
    budget.set_limit(1);
    assert_eq!(tasks.map(|task| task.wakes()), [0, 1]);
}

#[test]
fn waiting_service_leaves_queue_when_dropped() {
    let (budget, mut service) = limited(1, Scripted::default());
    let (mut waiting, mut last) = (service.clone(), service.clone());
    assert!(is_ready(&mut service));
    assert!(!is_ready(&mut waiting));
    assert!(!is_ready(&mut last));
    drop(waiting);
    assert_eq!(budget.waiters(), 1);
    drop(service);
    assert!(is_ready(&mut last));
}

#[test]
fn granted_service_gives_unit_back_when_dropped_unpolled() {
    let (budget, mut service) = limited(1, Scripted::default());
    let mut waiting = service.clone();
    assert!(is_ready(&mut service));
    assert!(!is_ready(&mut waiting));
    drop(service);
    assert_eq!(budget.acquired(), 1);
    drop(waiting);
    assert_eq!(budget.acquired(), 0);
}

#[test]
fn newcomer_waits_behind_waiting_service() {
    let (budget, mut service) = limited(1, Scripted::default());
    let (mut waiting, mut newcomer) = (service.clone(), service.clone());
    assert!(is_ready(&mut service));
    assert!(!is_ready(&mut waiting));
    drop(service);
    assert!(!is_ready(&mut newcomer));
    assert!(is_ready(&mut waiting));
    assert_eq!(budget.waiters(), 1);
}

#[test]
fn service_waits_while_limit_is_zero() {
    let (budget, mut service) = limited(0, Scripted::default());
    assert!(!is_ready(&mut service));
    budget.set_limit(1);
    assert!(is_ready(&mut service));
}

#[test]
fn closed_budget_fails_services() {
    let is_closed = |service: &mut ConcurrencyLimit<Scripted>| match poll_ready::<(), _>(service) {
        Poll::Ready(Err(error)) => error.is::<Closed>(),
        _ => false,
    };
    let (budget, mut service) = limited(1, Scripted::default());
    let [mut waiting, mut idle] = [(); 2].map(|()| service.clone());
    assert!(is_ready(&mut service));
    assert!(!is_ready(&mut waiting));
    budget.close();
    // Twice: an error ends a wait, but not the service.
    for _ in 0..2 {
        assert!(is_closed(&mut waiting));
        assert!(is_closed(&mut idle));
    }
    // A unit that was acquired before is used.
    assert!(is_ready(&mut service));
    now(service.call(())).unwrap();
    assert!(is_closed(&mut service));
    assert_eq!(budget.acquired(), 0);
}

#[test]
fn services_and_futures_can_be_sent() {
    fn is_static<T: Send + Sync + 'static>(_: &T) {}
    let mut service = limited(1, Scripted::default()).1;
    is_static(&service);
    assert!(is_ready(&mut service));
    is_static(&service.call(()));
    is_static::<BoxError>(&now(async { BoxError::from("any") }));
}
