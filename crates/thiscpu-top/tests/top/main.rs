//! `thiscpu-top` as users see it: text, JSON, exit status, and the screen of a terminal.

mod fixture;
mod print;
