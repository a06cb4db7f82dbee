//! Series of a shared registry under long random runs.

use std::array;

use thiscpu::model::{self, SharedNames};

use crate::run::{CPUS, in_random_orders, on_threads};

const NAMES: usize = 4;

type Names = SharedNames<6, CPUS>;

#[test]
fn each_add_is_in_a_last_value_or_in_the_present_one() {
    in_random_orders(4_000, || {
        // Leaked, because no other series may have this address in the same execution.
        let names: &Names = Box::leak(Box::new(Names::new()));
        let work = move |_| {
            let mut balance = [0; NAMES];
            for _ in 0..2 + model::choose(5) {
                let name = model::choose(NAMES);
                match model::choose(4) {
                    0 => balance[name] -= names.remove(name as u64).unwrap_or(0),
                    1 => drop(names.sum(array::from_fn::<_, NAMES, _>(|name| name as u64))),
                    _ => {
                        let n = [1, 2, 5, 1000][model::choose(4)];
                        names.add(name as u64, n).expect("a record for each name and thread");
                        balance[name] += n;
                    }
                }
            }
            balance
        };
        let balances = on_threads(2, CPUS, work);
        for name in 0..NAMES {
            let wanted: i64 = balances.iter().map(|balance| balance[name]).sum();
            assert_eq!(names.sum([name as u64])[0].unwrap_or(0), wanted, "name {name}");
        }
    });
}
