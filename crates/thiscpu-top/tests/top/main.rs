//! `thiscpu-top` as users see it: text, JSON, exit status, and the screen of a terminal.

mod ends;
mod fixture;
mod print;
mod screen;
mod tmux;
