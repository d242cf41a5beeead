//! The executor, driven by hand: whatever can happen between what it needs and what it is brought.

mod decisions;
mod errands;
mod hands;
mod looks;
