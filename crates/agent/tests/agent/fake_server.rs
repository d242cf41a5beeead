//! Scripted server: sends the events of a test, and records the requests of the agent. Incarnations and reports are
//! handled by the rules of the real server.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use axum::body::{Body, Bytes};
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post, put};
use axum::{Json, Router};
use futures::stream;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::mpsc;

use muster_core::keys::Keys;
use muster_core::names::{EnvName, NodeName, Role, RunId};
use muster_core::node::agent::PROTOCOL;
use muster_core::node::status::Activity;
use muster_core::report::Report;
use muster_core::report::history::NodeHistory;
use muster_core::report::record::ObservedRecord;
use muster_core::report::status_move::{self, StatusMove};
use muster_core::txn::Revision;
use muster_testkit::wait::within;
use muster_wire::problem::{Problem, ProblemCode};
use muster_wire::runs::LogPiece;
use muster_wire::sse;
use muster_wire::sync::{DesiredResponse, DesiredState, ReportAck, ReportResult, SyncEvent, SyncOpen};

use crate::bundles;

/// A request that the server received.
#[derive(Debug)]
pub(crate) enum AgentRequest {
    Open(Box<SyncOpen>),
    Report(Box<Report>),
    Activity(Activity),
}

/// Answer to the next reports. When none are left, all reports are accepted.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ScriptedAnswer {
    Refuse(ProblemCode),
    Outdated,
    Never,
    /// Accepts the report, but cuts the connection before the answer.
    AcceptAndCut,
}

#[derive(Debug)]
struct FakeServerState {
    requests: mpsc::Sender<AgentRequest>,
    logs: mpsc::Sender<(RunId, LogPiece)>,
    /// Sender of events for the newest stream.
    stream: Mutex<Option<mpsc::Sender<SyncEvent>>>,
    /// Events at the beginning of each stream.
    first_events: Mutex<Vec<SyncEvent>>,
    answers: Mutex<VecDeque<ScriptedAnswer>>,
    /// Shared like a store: replicas of one server have the same state.
    observed: Arc<Mutex<ObservedRecord>>,
    refuse_streams: Mutex<Option<ProblemCode>>,
    lose_activities: AtomicU32,
    /// Desired state for requests without a stream, unless the first events of a stream contain one.
    desired: Mutex<Option<DesiredState>>,
    /// Accepts requests without a stream and never answers.
    frozen: AtomicBool,
    refuse_logs: AtomicU32,
}

#[derive(Debug)]
pub(crate) struct FakeServer {
    pub(crate) address: SocketAddr,
    shared: Arc<FakeServerState>,
    requests: mpsc::Receiver<AgentRequest>,
    /// Live logs of runs. Separate from the other requests, because few tests read them.
    logs: mpsc::Receiver<(RunId, LogPiece)>,
    /// A runtime of its own, which can be ended at once with all connections, like `kill -9`.
    runtime: Option<Runtime>,
}

impl FakeServer {
    pub(crate) async fn start() -> Self {
        Self::start_at("127.0.0.1:0".parse().unwrap()).await
    }

    pub(crate) async fn start_at(address: SocketAddr) -> Self {
        Self::start_with(address, Arc::default()).await
    }

    /// Starts another replica of the same server.
    pub(crate) async fn start_beside(&self) -> Self {
        self.start_beside_at("127.0.0.1:0".parse().unwrap()).await
    }

    pub(crate) async fn start_beside_at(&self, address: SocketAddr) -> Self {
        Self::start_with(address, Arc::clone(&self.shared.observed)).await
    }

    async fn start_with(address: SocketAddr, observed: Arc<Mutex<ObservedRecord>>) -> Self {
        let (requests, inbox) = mpsc::channel(1000);
        let (logs, log_inbox) = mpsc::channel(1000);
        let hello = SyncEvent::Hello {
            incarnation: 1,
            role: Role::new("web").unwrap(),
            host_name: None,
            now: jiff::Timestamp::UNIX_EPOCH,
            protocol: Some(PROTOCOL),
        };
        let shared = Arc::new(FakeServerState {
            requests,
            logs,
            stream: Mutex::default(),
            first_events: Mutex::new(vec![hello]),
            answers: Mutex::default(),
            observed,
            refuse_streams: Mutex::default(),
            lose_activities: AtomicU32::default(),
            desired: Mutex::default(),
            frozen: AtomicBool::default(),
            refuse_logs: AtomicU32::default(),
        });
        let router = Router::new()
            .route("/v1/envs/{env}/nodes/{node}/sync", post(sync))
            .route("/v1/envs/{env}/nodes/{node}/reports", post(report))
            .route("/v1/envs/{env}/nodes/{node}/activity", put(activity))
            .route("/v1/envs/{env}/nodes/{node}/desired", get(desired))
            .route("/v1/envs/{env}/nodes/{node}/runs/{run}/log", post(log))
            .with_state(Arc::clone(&shared));
        let listener = bind(address).await;
        let address = listener.local_addr().unwrap();
        let router = router.merge(bundles::router(address));
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        runtime.spawn(async move { axum::serve(TcpListener::from_std(listener).unwrap(), router).await });
        Self { address, shared, requests: inbox, logs: log_inbox, runtime: Some(runtime) }
    }

    /// Ends the server like `kill -9`: all connections are cut.
    pub(crate) fn stop(self) -> SocketAddr {
        self.address
    }

    /// Sets the first events of each stream.
    pub(crate) fn set_first_events(&self, events: Vec<SyncEvent>) {
        *self.shared.first_events.lock().unwrap() = events;
        *self.shared.desired.lock().unwrap() = None;
    }

    pub(crate) fn answer(&self, answers: impl IntoIterator<Item = ScriptedAnswer>) {
        self.shared.answers.lock().unwrap().extend(answers);
    }

    /// Accepts all reports from now on.
    pub(crate) fn accept_all(&self) {
        self.shared.answers.lock().unwrap().clear();
    }

    /// Observed state of the node on the server.
    pub(crate) fn observed(&self) -> ObservedRecord {
        self.shared.observed.lock().unwrap().clone()
    }

    /// Sets the sequence number of the last accepted report.
    pub(crate) fn set_accepted_up_to(&self, seq: u64) {
        self.shared.observed.lock().unwrap().seq = seq;
    }

    pub(crate) fn refuse_streams(&self, code: Option<ProblemCode>) {
        *self.shared.refuse_streams.lock().unwrap() = code;
    }

    /// Sets the desired state for requests without a stream. A real server omits it on a stream if the agent already
    /// has it.
    pub(crate) fn set_desired(&self, desired: DesiredState) {
        *self.shared.desired.lock().unwrap() = Some(desired);
    }

    /// Stops answering requests without a stream.
    pub(crate) fn freeze(&self) {
        self.shared.frozen.store(true, Ordering::SeqCst);
    }

    /// Rejects the next `count` activities.
    pub(crate) fn lose_activities(&self, count: u32) {
        self.shared.lose_activities.store(count, Ordering::SeqCst);
    }

    /// Sends an event on the newest stream. Waits for a stream if there is none.
    pub(crate) async fn send(&self, event: SyncEvent) {
        let open = async {
            loop {
                let stream = self.shared.stream.lock().unwrap().clone();
                match stream {
                    Some(stream) => return stream,
                    None => tokio::task::yield_now().await,
                }
            }
        };
        let stream = within("a stream is open", open).await;
        stream.send(event).await.unwrap();
    }

    /// Ends the newest stream.
    pub(crate) fn cut_stream(&self) {
        self.shared.stream.lock().unwrap().take();
    }

    pub(crate) async fn next_request(&mut self) -> AgentRequest {
        within("the agent sends something", self.requests.recv()).await.unwrap()
    }

    /// Waits for the next report.
    pub(crate) async fn report(&mut self) -> Report {
        loop {
            if let AgentRequest::Report(report) = self.next_request().await {
                return *report;
            }
        }
    }

    /// Waits for the next stream.
    pub(crate) async fn opened(&mut self) -> SyncOpen {
        loop {
            if let AgentRequest::Open(open) = self.next_request().await {
                return *open;
            }
        }
    }

    /// Waits until the agent sends such an activity.
    pub(crate) async fn activity(&mut self, wanted: impl Fn(&Activity) -> bool) -> Activity {
        loop {
            match self.next_request().await {
                AgentRequest::Activity(activity) if wanted(&activity) => return activity,
                AgentRequest::Open(open) if wanted(&open.activity) => return open.activity,
                AgentRequest::Activity(_) | AgentRequest::Open(_) | AgentRequest::Report(_) => {}
            }
        }
    }

    /// Waits for the next piece of the log of a run.
    pub(crate) async fn log(&mut self) -> (RunId, LogPiece) {
        within("a run writes to its log", self.logs.recv()).await.unwrap()
    }

    /// Rejects the next `count` parts of logs, after recording them.
    pub(crate) fn refuse_logs(&self, count: u32) {
        self.shared.refuse_logs.store(count, Ordering::SeqCst);
    }

    /// Requests that were received and not yet waited for.
    pub(crate) fn queued_requests(&mut self) -> Vec<AgentRequest> {
        std::iter::from_fn(|| self.requests.try_recv().ok()).collect()
    }
}

impl FakeServerState {
    /// Incarnation for an agent that opens a stream.
    fn assign_incarnation(&self, open: &SyncOpen) -> u64 {
        let mut observed = self.observed.lock().unwrap();
        let (keys, node) = (Keys::new(&EnvName::new("test").unwrap()), NodeName::new("web1").unwrap());
        let known = Some((&*observed, Revision(1)));
        let incarnation =
            status_move::assign_incarnation(&keys, &node, known, open.incarnation, None).unwrap().incarnation;
        if incarnation != observed.incarnation {
            observed.seq = 0;
        }
        observed.incarnation = incarnation;
        incarnation
    }

    fn apply_report(&self, report: &Report) -> ReportResult {
        let mut observed = self.observed.lock().unwrap();
        let (keys, role) = (Keys::new(&EnvName::new("test").unwrap()), Role::new("web").unwrap());
        let known = status_move::MoveInput {
            keys: &keys,
            node: &report.node,
            role: &role,
            designed_at: Revision(1),
            in_service: true,
            observed: Some((&*observed, Revision(1))),
            history: &NodeHistory::default(),
            log: None,
            now: report.ended,
        };
        match status_move::decide(known, report).unwrap() {
            StatusMove::Apply(applied) => {
                *observed = applied.observed;
                ReportResult::Applied
            }
            StatusMove::AlreadyApplied => ReportResult::AlreadyApplied,
            StatusMove::Outdated => ReportResult::Outdated,
        }
    }
}

impl Drop for FakeServer {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Binds the port. Retries, because a server that was just ended may still hold it.
async fn bind(address: SocketAddr) -> std::net::TcpListener {
    let bound = async {
        loop {
            match TcpListener::bind(address).await {
                Ok(listener) => return listener.into_std().unwrap(),
                Err(_) => tokio::task::yield_now().await,
            }
        }
    };
    within("the port is free", bound).await
}

async fn sync(State(shared): State<Arc<FakeServerState>>, Json(open): Json<SyncOpen>) -> Response {
    if let Some(code) = *shared.refuse_streams.lock().unwrap() {
        let _ = shared.requests.try_send(AgentRequest::Open(Box::new(open)));
        return problem(code);
    }
    let (sender, receiver) = mpsc::channel(100);
    let given = shared.assign_incarnation(&open);
    for event in shared.first_events.lock().unwrap().iter() {
        let mut event = event.clone();
        if let SyncEvent::Hello { incarnation, .. } = &mut event {
            *incarnation = given;
        }
        sender.try_send(event).unwrap();
    }
    *shared.stream.lock().unwrap() = Some(sender);
    shared.requests.send(AgentRequest::Open(Box::new(open))).await.unwrap();
    let body = stream::unfold(receiver, |mut receiver| async move {
        let event = receiver.recv().await?;
        Some((Ok::<_, Infallible>(Bytes::from(sse::encode(&event).unwrap())), receiver))
    });
    ([("content-type", "text/event-stream")], Body::from_stream(body)).into_response()
}

/// The desired state and the pause, for requests without a stream.
async fn desired(State(shared): State<Arc<FakeServerState>>) -> Response {
    if shared.frozen.load(Ordering::SeqCst) {
        std::future::pending::<()>().await;
    }
    let known = shared.desired.lock().unwrap().clone();
    let mut response =
        DesiredResponse { desired: known, pause: None, now: jiff::Timestamp::UNIX_EPOCH, protocol: None };
    for event in shared.first_events.lock().unwrap().iter() {
        match event {
            SyncEvent::Desired(desired) => response.desired = Some(desired.clone()),
            SyncEvent::Pause { pause } => response.pause = pause.clone(),
            SyncEvent::Hello { protocol, .. } => response.protocol = *protocol,
            SyncEvent::Snapshot { .. }
            | SyncEvent::Run(_)
            | SyncEvent::Trust { .. }
            | SyncEvent::Identity { .. }
            | SyncEvent::Ping
            | SyncEvent::Move => {}
        }
    }
    Json(response).into_response()
}

async fn report(State(shared): State<Arc<FakeServerState>>, Json(report): Json<Report>) -> Response {
    let answer = shared.answers.lock().unwrap().pop_front();
    let taken = |taken| Json(ReportAck { taken, revision: Revision(1) }).into_response();
    let result = match answer {
        None | Some(ScriptedAnswer::AcceptAndCut) => Some(shared.apply_report(&report)),
        Some(ScriptedAnswer::Outdated | ScriptedAnswer::Refuse(_) | ScriptedAnswer::Never) => None,
    };
    let _ = shared.requests.send(AgentRequest::Report(Box::new(report))).await;
    match answer {
        None => taken(result.unwrap()),
        Some(ScriptedAnswer::Outdated) => taken(ReportResult::Outdated),
        Some(ScriptedAnswer::Refuse(code)) => problem(code),
        Some(ScriptedAnswer::Never) => std::future::pending().await,
        Some(ScriptedAnswer::AcceptAndCut) => {
            // A truncated body looks like a connection that was cut.
            let broken = stream::iter([Ok(Bytes::from_static(b"{")), Err(std::io::Error::other("cut"))]);
            Body::from_stream(broken).into_response()
        }
    }
}

async fn activity(State(shared): State<Arc<FakeServerState>>, Json(activity): Json<Activity>) -> StatusCode {
    let lost = shared.lose_activities.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
    if lost.is_ok() {
        return StatusCode::SERVICE_UNAVAILABLE;
    }
    let _ = shared.requests.send(AgentRequest::Activity(activity)).await;
    StatusCode::NO_CONTENT
}

async fn log(
    State(shared): State<Arc<FakeServerState>>,
    Path((_, _, run)): Path<(String, String, RunId)>,
    Json(piece): Json<LogPiece>,
) -> StatusCode {
    let _ = shared.logs.try_send((run, piece));
    let refused = shared.refuse_logs.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
    if refused.is_ok() { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::NO_CONTENT }
}

fn problem(code: ProblemCode) -> Response {
    (StatusCode::from_u16(code.status()).unwrap(), Json(Problem::new(code, "as scripted by the test"))).into_response()
}
