//! The library as programs meet it: preloaded, from C and C++, which are compiled here.

mod errors;
mod family;
mod fixture;
mod life;
mod settings;
