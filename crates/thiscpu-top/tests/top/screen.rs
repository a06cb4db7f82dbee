//! What the screen of a terminal shows, and the keys that change it.

use crate::fixture::{Child, PROGRAM, Place};
use crate::tmux::Tmux;

/// Returns the line of a screen that ends with a name.
fn line_of<'a>(screen: &'a str, name: &str) -> Option<&'a str> {
    screen.lines().find(|line| line.trim_end().ends_with(&format!(" {name}")))
}

/// Returns the names at the ends of the counters' lines.
fn names(screen: &str) -> Vec<&str> {
    let lines = screen.lines().skip_while(|line| !line.contains("COUNTER")).skip(1);
    let names = lines.map(|line| line.split_whitespace().next_back().unwrap_or_default());
    names.take_while(|name| !name.is_empty()).collect()
}

fn start(tmux: &Tmux, place: &Place, options: &str) {
    tmux.line(&format!("{PROGRAM} {options} {}", place.path("shop").display()));
    tmux.wait_for_text("q quit");
}

#[test]
fn screen_shows_rate_of_running_process() {
    let Some(tmux) = Tmux::start(80, 24) else { return };
    let place = Place::new();
    place.create("shop").counter("idle").unwrap().add(12_345_678_901);
    let child = Child::start(&format!("add 10 {}", place.path("shop").display()));
    start(&tmux, &place, "--interval 0.2");
    let rate = |screen: &str| {
        let line = line_of(screen, "busy")?;
        let rate = line.split_whitespace().nth(1)?.strip_suffix('k')?;
        rate.parse().ok().filter(|&rate: &f64| rate > 0.0)
    };
    let screen = tmux.wait_for("rate", |screen| rate(screen).is_some());
    // 10 in each millisecond, or a part of that on a busy machine. A look that is interrupted
    // between the time and the value shows more.
    assert!(rate(&screen).unwrap() <= 100.0, "{screen}");
    let idle: Vec<_> = line_of(&screen, "idle").unwrap().split_whitespace().collect();
    assert_eq!(idle, ["12345678901", "0", "idle"], "{screen}");
    assert!(screen.starts_with("thiscpu-top /dev/shm/"), "{screen}");
    // By process too.
    tmux.keys(&["q"]);
    tmux.line(&format!("{PROGRAM} {}", child.id()));
    tmux.wait_for("another rate", |screen| screen.contains("q quit") && rate(screen).is_some());
}

#[test]
fn screen_shows_who_holds_units_and_who_has_ended() {
    let Some(tmux) = Tmux::start(80, 24) else { return };
    let place = Place::new();
    drop(place.create("shop"));
    let hold = |units: u32| Child::start(&format!("hold {units} {}", place.path("shop").display()));
    let (one, other) = (hold(20), hold(30));
    let (one_id, other_id) = (one.id(), other.id());
    start(&tmux, &place, "--interval 0.2");
    let processes = |screen: &str, id: &str, state: &str, held: &str| {
        screen.lines().any(|line| {
            let words: Vec<_> = line.split_whitespace().collect();
            words.len() == 5 && (words[0], words[2], words[3], words[4]) == (id, state, held, "1")
        })
    };
    let screen = tmux.wait_for("processes", |screen| {
        processes(screen, &one_id, "alive", "20") && processes(screen, &other_id, "alive", "30")
    });
    let budget = screen.lines().find(|line| line.contains(" connections ")).unwrap();
    let words: Vec<_> = budget.split_whitespace().collect();
    // All units may be in the pool, or some are lent to CPUs.
    assert_eq!(words[0], "100", "{screen}");
    assert_eq!([words[1], words[2]].map(|it| it.trim_start_matches('~')), ["50", "50"], "{screen}");
    assert_eq!(words[3..5], ["no", "connections"], "{screen}");
    assert!(budget.ends_with(&format!("{other_id}:30, {one_id}:20")), "{screen}");
    other.kill();
    let screen = tmux.wait_for("ended process", |screen| {
        processes(screen, &other_id, "ended", "30") && processes(screen, &one_id, "alive", "20")
    });
    assert!(screen.contains(&format!("{other_id}:30 ended, {one_id}:20")), "{screen}");
}

#[test]
fn narrow_screens_show_values_and_cut_nothing_else() {
    let place = Place::new();
    let segment = place.create("shop");
    segment.counter("requests").unwrap().add(1_234_567_890_123);
    let child = Child::start(&format!("hold 20 {}", place.path("shop").display()));
    let Some(tmux) = Tmux::start(40, 24) else { return };
    start(&tmux, &place, "--interval 0.2");
    let screen = tmux.wait_for("values", |screen| {
        screen.contains("1.23T       0 requests") && screen.contains("20     100")
    });
    let words = |name| line_of(&screen, name).unwrap().split_whitespace().collect::<Vec<_>>();
    assert_eq!(words("requests"), ["1.23T", "0", "requests"], "{screen}");
    assert_eq!(words("connections")[1..], ["100", "no", "connections"], "{screen}");
    let process = format!("{:>10} alive", child.id());
    assert!(screen.lines().any(|line| line.starts_with(&process) && line.ends_with(" 20")));
    for label in ["   VALUE  RATE/S COUNTER", "HELD   LIMIT WAITING BUDGET", "PROCESS STATE"] {
        assert!(screen.contains(label), "{label}: {screen}");
    }
    // Other sizes, down to nearly nothing.
    for (columns, rows) in [(120, 40), (80, 10), (20, 5), (2, 2), (80, 24)] {
        tmux.resize(columns, rows);
        let screen = tmux.wait_for("screen of this size", |screen| match columns {
            ..20 => true,
            20 => screen.contains("VALUE"),
            // The line of keys ends at the last column that it needs.
            _ => screen.contains("requests") && screen.contains("Tab pane"),
        });
        let width = screen.lines().map(|line| line.chars().count()).max().unwrap();
        assert!(width <= usize::from(columns), "{screen}");
    }
    tmux.wait_for_text("1234567890123");
}

#[test]
fn colors_are_left_out_where_asked() {
    let place = Place::new();
    drop(place.create("shop"));
    let Some(tmux) = Tmux::start(80, 24) else { return };
    Child::start(&format!("hold 20 {}", place.path("shop").display())).kill();
    let has_color = |screen: &str| {
        let sequences = screen.split("\u{1b}[").skip(1);
        let codes = sequences.filter_map(|it| it.split_once('m')).flat_map(|it| it.0.split(';'));
        codes
            .filter_map(|code| code.parse().ok())
            .any(|code: u32| matches!(code, 30..=38 | 40..=48 | 90..=107))
    };
    start(&tmux, &place, "");
    tmux.wait_for_text("ended");
    assert!(has_color(&tmux.screen_with_styles()), "{}", tmux.screen_with_styles());
    tmux.keys(&["q"]);
    tmux.wait_for("prompt", |screen| !screen.contains("q quit"));
    tmux.line(&format!("NO_COLOR=1 {PROGRAM} {}", place.path("shop").display()));
    tmux.wait_for_text("q quit");
    let screen = tmux.screen_with_styles();
    assert!(screen.contains("ended") && !has_color(&screen), "{screen}");
}

#[test]
fn dumb_terminals_get_tables_in_turn() {
    let place = Place::new();
    place.create("shop").counter("requests").unwrap().add(7);
    let Some(tmux) = Tmux::start(80, 24) else { return };
    let path = place.path("shop");
    tmux.line(&format!("TERM=dumb {PROGRAM} --interval 0.1 {}", path.display()));
    let screen = tmux.wait_for("tables", |screen| screen.matches("requests").count() >= 2);
    assert!(screen.contains("VALUE  RATE/S  COUNTER") && !screen.contains("q quit"), "{screen}");
    tmux.keys(&["C-c"]);
}

#[test]
fn keys_sort_filter_scroll_and_pause() {
    let place = Place::new();
    let segment = place.create("shop");
    for number in 0..60 {
        segment.counter(&format!("n{number:02}")).unwrap().add(1000 - number);
    }
    let Some(tmux) = Tmux::start(80, 24) else { return };
    start(&tmux, &place, "--interval 0.2 --sort name");
    let shows = |first: &str, what: &str| {
        tmux.wait_for(what, |screen| names(screen).first() == Some(&first))
    };
    shows("n00", "order by name");
    tmux.wait_for_text("COUNTER (1-20 of 60)");
    tmux.keys(&["Down", "j"]);
    shows("n02", "scrolled row");
    tmux.keys(&["PageDown"]);
    shows("n22", "next page");
    tmux.keys(&["End"]);
    tmux.wait_for("last page", |screen| {
        screen.contains("(41-60 of 60)") && names(screen).first() == Some(&"n40")
    });
    tmux.keys(&["Home", "r"]);
    shows("n59", "reversed order");
    tmux.keys(&["r", "s"]);
    tmux.wait_for("order by value", |screen| {
        screen.contains("sort=value") && names(screen).first() == Some(&"n00")
    });
    segment.counter("n33").unwrap().add(5000);
    shows("n33", "largest value");
    tmux.keys(&["/", "N", "4"]);
    tmux.wait_for("filtered rows", |screen| {
        screen.contains("filter: N4_") && screen.contains("(1-10 of 10)")
    });
    tmux.keys(&["BSpace", "5", "Enter"]);
    tmux.wait_for("another filter", |screen| {
        screen.contains("filter=N5") && names(screen).first() == Some(&"n50")
    });
    tmux.keys(&["/", "x"]);
    tmux.wait_for_text("filter: N5x_");
    tmux.keys(&["Escape"]);
    tmux.wait_for_text("filter=N5");
    tmux.keys(&["Escape"]);
    tmux.wait_for_text("of 60)");
    tmux.keys(&["p"]);
    tmux.wait_for_text("PAUSED");
    segment.counter("n00").unwrap().add(100_000);
    tmux.keys(&["?"]);
    tmux.wait_for_text("Any key ends this help");
    tmux.keys(&["x"]);
    tmux.wait_for("old values", |screen| {
        screen.contains("PAUSED") && names(screen).first() == Some(&"n33")
    });
    tmux.keys(&["p"]);
    tmux.wait_for("values from now", |screen| {
        !screen.contains("PAUSED") && names(screen).first() == Some(&"n00")
    });
}

#[test]
fn tab_moves_to_panes_that_have_rows() {
    let place = Place::new();
    let segment = place.create("shop");
    for number in 0..30 {
        segment.counter(&format!("n{number:02}")).unwrap();
        segment.budget(&format!("b{number:02}"), 10).unwrap();
    }
    let Some(tmux) = Tmux::start(80, 24) else { return };
    start(&tmux, &place, "--sort name");
    let screen = tmux.wait_for_text("BUDGET  PID:HELD (1-4 of 30)");
    assert!(screen.contains("COUNTER (1-13 of 30)"), "{screen}");
    tmux.keys(&["Tab", "PageDown"]);
    let screen = tmux.wait_for_text("PID:HELD (14-26 of 30)");
    assert!(screen.contains("COUNTER (1-4 of 30)"), "{screen}");
    tmux.keys(&["Tab", "Tab", "j"]);
    tmux.wait_for_text("COUNTER (2-14 of 30)");
}

#[test]
fn replaced_segment_is_shown_and_removed_one_is_stale() {
    let place = Place::new();
    place.create("shop").counter("before").unwrap().add(7);
    let Some(tmux) = Tmux::start(80, 24) else { return };
    start(&tmux, &place, "--interval 0.2");
    tmux.wait_for("old value", |screen| line_of(screen, "before").is_some());
    std::fs::remove_file(place.path("shop")).unwrap();
    let screen = tmux.wait_for_text("STALE: the segment was removed");
    assert!(line_of(&screen, "before").unwrap().contains(" 7 "), "{screen}");
    place.create("shop").counter("new").unwrap().add(8);
    let screen = tmux.wait_for("new value", |screen| line_of(screen, "new").is_some());
    assert!(!screen.contains("STALE") && line_of(&screen, "before").is_none(), "{screen}");
    assert!(screen.contains("another segment has taken this name"), "{screen}");
}

#[test]
fn screen_is_written_only_where_it_changes() {
    use std::io::Read as _;
    let place = Place::new();
    let segment = place.create("shop");
    for number in 0..100 {
        segment.counter(&format!("n{number:02}")).unwrap();
    }
    let (mut ours, theirs) = thiscpu_test_support::terminal::open(80);
    let mut command = std::process::Command::new(PROGRAM);
    command.args(["--interval", "0.1", "--sort", "name"]).arg(place.path("shop"));
    command.env("TERM", "xterm").stdin(theirs.try_clone().unwrap()).stdout(theirs);
    let mut program = command.spawn().unwrap();
    // It has the terminal too.
    drop(command);
    let mut read = || {
        let mut chunk = [0; 4096];
        let count = ours.read(&mut chunk).unwrap();
        String::from_utf8_lossy(&chunk[..count]).into_owned()
    };
    // The last row of the screen, and the last words.
    let mut first = String::new();
    while !["n19", "quit", "pane"].iter().all(|part| first.contains(part)) {
        first += &read();
    }
    segment.counter("n03").unwrap().add(888_888);
    let mut later = String::new();
    while !later.contains("888888") {
        later += &read();
    }
    program.kill().unwrap();
    program.wait().unwrap();
    // Rates have become known meanwhile.
    assert!(!later.contains("n03") && !later.contains("quit"), "{later:?}");
}
