//! Connected agents: admission, incarnations, sync streams, wake-ups and live logs.

pub(crate) mod admission;
pub(crate) mod compatibility;
pub(crate) mod duplicates;
mod hub;
pub(crate) mod incarnation;
pub(crate) mod live_logs;
mod live_run;
mod lookup_index;
mod session;
pub(crate) mod stream;

pub use admission::Admission;
pub use hub::Hub;
pub(crate) use hub::{EnvNode, SessionGuard};
pub(crate) use session::JoinRequest;
pub use session::{AgentConnection, AgentLink, AgentSession, Links};
pub use stream::PING;
