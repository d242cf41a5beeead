//! Reports to the server: [`sender`] sends the reports in the outbox, in order. [`dispatch`] selects the next report and
//! interprets answers. [`unsent`] is a report before it is sent. [`activity`] sends the agent's current activity.

pub mod activity;
pub mod dispatch;
pub mod sender;
pub mod unsent;
