//! What this crate promises to its users.

mod errors;
mod facade;
mod http;
mod instants;
mod observed;
mod places;
mod text;
mod threads;

/// The README's example is one that is compiled.
#[test]
fn the_readme_has_the_first_example() {
    let (readme, example) =
        (include_str!("../../../../README.md"), include_str!("../../examples/first.rs"));
    let (_, example) = example.split_once("\n\n").unwrap();
    assert!(readme.contains(&format!("```rust\n{example}```\n")), "it should be\n{example}");
}
