//! The index of a shared registry in every order of steps, with weak memory.

use thiscpu::model::{self, SharedNames};

use crate::run::in_every_order;

static NAMES: SharedNames<4, 3> = SharedNames::new();

#[test]
fn names_are_whole_and_not_doubled() {
    in_every_order(3, || {
        let one = model::spawn(1, || NAMES.add(0));
        let own = [0, 1].map(|name| NAMES.add(name).expect("room"));
        let other = one.join().expect("room");
        // Both counted in one cell, and the second name has another.
        assert_eq!((own[0] + other, own[1]), (1, 0));
        assert_eq!([0, 1].map(|name| NAMES.add(name)), [Some(2), Some(1)]);
    });
}

// A process that loses keeps a record, which another one writes again.
#[test]
fn spare_is_used_by_the_next_insert() {
    in_every_order(3, || {
        let one = model::spawn(1, || {
            NAMES.add(0).expect("room");
            NAMES.add(1).expect("room");
        });
        NAMES.add(0).expect("room");
        one.join();
        NAMES.add(2).expect("room");
        assert_eq!([0, 1, 2].map(|name| NAMES.add(name)), [Some(2), Some(1), Some(1)]);
        assert_eq!(NAMES.cells_used(), 3);
    });
}
