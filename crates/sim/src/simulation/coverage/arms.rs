//! The list of the engine's decisions.

/// Defines the arms from one list: a name, words for the table, and where no seed or few seeds reach it, the reason.
macro_rules! decision_arms {
    ($($name:ident: $words:literal $(, out of reach: $why:literal)? $(, rare: $rare:literal)?;)*) => {
        /// One decision of the rollout engine, or one reason of it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum DecisionArm {
            $($name,)*
        }

        impl DecisionArm {
            pub const ALL: [DecisionArm; [$(DecisionArm::$name),*].len()] = [$(DecisionArm::$name),*];

            pub fn words(self) -> &'static str {
                match self {
                    $(DecisionArm::$name => $words,)*
                }
            }

            /// The reason why no seed reaches it.
            pub fn out_of_reach(self) -> Option<&'static str> {
                match self {
                    $(DecisionArm::$name => [$($why)?].first().copied(),)*
                }
            }

            /// The reason why so few seeds reach it that the fixed set may not.
            pub fn rare(self) -> Option<&'static str> {
                match self {
                    $(DecisionArm::$name => [$($rare)?].first().copied(),)*
                }
            }
        }
    };
}

decision_arms! {
    // Results of a reconciliation.
    ReconcileIdle: "a reconciliation found no running rollout";
    ReconcileWaits: "a reconciliation waits for a time or for a change";
    ReconcileFailed: "a reconciliation ended because IO failed or a commit has an unknown outcome";
    ReconcileStuck: "a reconciliation could not write the record",
        out of reach: "records can always be written as JSON";
    ReconcileMore: "a reconciliation ended after its limit of steps",
        out of reach: "it takes thousands of nodes";

    // Commits of the controller.
    StepCommitted: "a write of the controller was committed";
    StepConflict: "a write of the controller conflicted with another one",
        rare: "a command must be committed within milliseconds of a step";
    StepLockLost: "a write of the controller was refused because the lock was lost";
    StepInvalid: "a write of the controller was invalid",
        out of reach: "records of a small fleet fit in the store";
    StepUnknown: "a write of the controller has an unknown outcome";

    // Steps of the controller, by their effect on the record.
    Grant: "nodes are granted";
    GrantRetry: "a node is granted again after a retry";
    GrantReleased: "a node whose slot was released is granted again";
    WaveBegins: "a wave begins";
    WaveSettles: "all nodes of a wave are done";
    WaveReopens: "a node of a settled wave is no longer done";
    SoakRestarts: "a soak starts again from a later time",
        rare: "a node of a settled wave must break and recover during a pause";
    WavePasses: "a wave passes";
    GatePasses: "a gate passes";
    GateFails: "a gate fails";
    GateInconclusive: "a gate is inconclusive";
    CompleteAll: "a rollout completes with all nodes at the target";
    CompletePart: "a rollout completes without some nodes";
    CompleteAtOnce: "an at-once rollout completes";
    IdleBegins: "a rollout becomes idle: no window is open, or all remaining nodes are paused";
    IdleEnds: "a rollout is no longer idle";
    RetryAfterPause: "a node that missed its deadline during a pause is to be granted again",
        rare: "a pause must begin between a grant and its run, and outlast the deadline";
    RetryAllAfterPause: "too many nodes missed their deadline during a pause to name them",
        out of reach: "it takes more than 80 nodes";
    SaveOutcome: "the outcome of an ended rollout is stored";

    // Pauses by the controller.
    PauseCanary: "a rollout pauses: failures in a first wave";
    PauseWave: "a rollout pauses: failures in a later wave";
    PauseTotal: "a rollout pauses: failures in total";
    PauseRollback: "a rollback pauses: nodes failed to roll back",
        rare: "the old version fails on few nodes";
    PauseAllNodes: "a rollout pauses: nodes failed and none is healthy",
        rare: "failed nodes use the budget, so that other nodes are not granted any more";
    PauseGateFailed: "a rollout pauses: its gate failed";
    PauseGateInconclusive: "a rollout pauses: its gate is inconclusive";
    PauseNoProgress: "a rollout pauses: no progress";
    PauseNoTarget: "a rollout pauses: there is no version to roll back to",
        rare: "the fleet has validated v1 before; only a rollout to v1 itself has no other version";
    PauseBlocked: "a rollout pauses: its plan cannot be read or executed",
        out of reach: "seeds lose no blobs; the scenario plan-missing does";
    PauseAtOnce: "an at-once rollout pauses";

    // Automatic rollbacks.
    RollBackCanary: "a rollout is rolled back: failures in a first wave";
    RollBackWave: "a rollout is rolled back: failures in a later wave";
    RollBackTotal: "a rollout is rolled back: failures in total";
    RollBackGate: "a rollout is rolled back: its gate failed";

    // Ends of a pause, by its reason.
    ResumeOperator: "an operator's pause ends";
    ResumeOverFailure: "an operator's pause over failures ends";
    ResumeOverOther: "an operator's pause over another reason ends",
        rare: "an operator must pause a rollout that has paused for a gate or without progress";
    ResumeFailures: "a pause because of failures ends";
    ResumeGateFailed: "a pause because of a failed gate ends";
    ResumeGateInconclusive: "a pause because of an inconclusive gate ends";
    ResumeNoProgress: "a pause because of missing progress ends";
    ResumeNoTarget: "a pause because there is no version to roll back to ends",
        rare: "a pause for that reason is rare itself";
    ResumeBlocked: "a pause because of an unusable plan ends",
        out of reach: "seeds lose no blobs; the scenario plan-missing does";

    // Commands of operators.
    CommandPause: "an operator pauses a rollout";
    CommandResume: "an operator resumes a rollout";
    CommandAbort: "an operator aborts a rollout";
    CommandPromote: "an operator promotes a wave";
    CommandPromoteAll: "an operator promotes all waves";
    CommandSkip: "an operator skips a node";
    CommandRetryFailed: "an operator retries all failed nodes";
    CommandRetryNodes: "an operator retries a node";
    CommandRelease: "an operator releases a slot";
    CommandNoOp: "a command is a no-op";
    RefusedEnded: "a command is refused: the rollout has ended";
    RefusedNothingToPromote: "a command is refused: no wave waits for a promotion";
    RefusedAtOnce: "a command is refused: the rollout moved all nodes at once";
    RefusedUnknownNode: "a command is refused: the node is not in the design";
    RefusedNotFailed: "a retry is refused: the node has not failed";
    RefusedNoFailedNode: "a retry is refused: no node has failed";
    RefusedNoPlan: "a retry is refused: the plan cannot be read",
        out of reach: "seeds lose no blobs; the scenario plan-missing does";
    RefusedHoldsNoSlot: "a release is refused: the node holds no slot";
    RefusedTooManyNodes: "a command is refused: the record names too many nodes",
        out of reach: "it takes more than 80 nodes";
    RefusedUnknownRollout: "a command is refused: there is no such rollout",
        out of reach: "commands go to the active rollout, and rollouts are not deleted";
    CommandUnwritable: "a command could not write the record",
        out of reach: "records can always be written as JSON";
    CommandContended: "a command fails after too many conflicts",
        out of reach: "it takes 32 conflicts in a row";

    // Starts of rollouts.
    Start: "a rollout starts";
    StartSupersedes: "a rollout supersedes another one";
    StartRepeated: "a start is answered with the rollout that it started before";
    StartNoOp: "a start is a no-op: all nodes have validated the version";
    StartRollBack: "an operator rolls a rollout back";
    StartOpen: "a start is refused: a rollout is open";
    StartOlder: "a start is refused: the release is older";
    StartStalePlan: "a start is refused: the plan is out of date",
        out of reach: "seeds start no saved plans; the scenario stale-plan does";
    StartContended: "a start fails after too many conflicts",
        out of reach: "it takes 8 conflicts in a row";
    StartBadPlan: "a start is refused: no plan can be made",
        out of reach: "designs, strategies and versions of seeds are valid";
    StartForeign: "a start is refused: a plan of another environment, or a foreign command",
        out of reach: "seeds start no saved plans";
    StartMaintenance: "a start is refused: the environment is restored or destroyed",
        out of reach: "no seed restores or destroys the environment";
    StartReleaseGone: "a start is refused: the release was removed or replaced",
        out of reach: "no seed removes releases";
    StartUnwritable: "a start could not write the record",
        out of reach: "records can always be written as JSON";
    RollBackNotActive: "a rollback is refused: the rollout is no longer active",
        rare: "another rollout must start between two steps of the request";
    RollBackAlready: "a rollback is refused: the rollout was rolled back already",
        rare: "two rollbacks must be requested within milliseconds";
    RollBackOfRollback: "a rollback is refused: the rollout is itself a rollback",
        out of reach: "operators of seeds undo rollbacks too";
    RollBackNoVersion: "a rollback is refused: no other version was validated";

    // Reasons why rollouts and nodes wait, as `muster rollout status` shows them.
    HoldHalted: "a rollout waits: it is paused";
    HoldWindow: "a rollout waits: no window is open";
    HoldSoak: "a rollout waits: a wave soaks";
    HoldGate: "a rollout waits: a gate is being checked";
    HoldPromotion: "a rollout waits: for a promotion";
    HoldTurn: "a node waits: for a wave before its role",
        out of reach: "the plan orders the roles already";
    HoldRoleBudget: "a node waits: the budget of its role is used";
    HoldDomainBudget: "a node waits: the budget of its label is used";
    HoldRamp: "a node waits: its wave ramps up";
    HoldBrake: "a node waits: most of its failure domain is disconnected";
    HoldPaused: "a node waits: it is paused";
    HoldCordoned: "a node waits: it is cordoned";
    HoldSilent: "a node waits: its agent is disconnected";
    HoldNotDue: "a node waits: cron has not started its agent",
        out of reach: "agents of the simulated fleets run all the time";
    HoldMachine: "a node waits: it has no machine",
        rare: "a node that joins is provisioned within a second";

    // States of nodes in a rollout.
    NodeWaiting: "a node is waiting";
    NodeGranted: "a node is granted";
    NodePending: "a node is pending",
        rare: "nodes are pending for a moment, and states are read every five seconds";
    NodeSoaking: "a node is soaking";
    NodeHealthy: "a node is healthy";
    NodeNotConfigured: "a node has failed: its run";
    NodeNotValidated: "a node has failed: its validation";
    NodeRolledBack: "a node has failed: it rolled back by itself",
        rare: "an agent must lose its servers right after a run, under a strategy with confirm_within";
    NodeExpired: "a node has failed: it was not healthy in time";
    NodePendingTooLong: "a node has failed: it was pending for too long",
        rare: "a node must wait for a lost node for a minute or more";
    NodeUnreachable: "a node has failed: its agent was disconnected for too long";
    NodeForgiven: "a node has failed, and its failure does not count";
    NodeSkipped: "a node is skipped";
    NodeRemoved: "a node was removed from the design";
}
