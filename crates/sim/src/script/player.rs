//! Plays a script: starts with a converged fleet, and runs one line after the other.

use std::time::Duration;

use super::assertion::{Assertion, Observations};
use super::names::nodes_of;
use super::parser::{Line, Script, Step};
use super::syntax::{ScriptError, ScriptFailure};
use super::transcript::Transcript;
use crate::rng::Rng;
use crate::simulation::World;
use crate::simulation::event::SimTime;
use crate::simulation::fleet::{ReleaseBehaviour, ScriptedFailure, version};

/// The time for the first version, before the scenario starts.
const BEFORE: Duration = Duration::from_secs(90);
/// The longest time that a script waits for an assertion.
const TIMEOUT: Duration = Duration::from_secs(24 * 3_600);
/// Idle time at the end, in which pending messages arrive before the final checks.
const QUIET: Duration = Duration::from_secs(60);

/// The result of a script.
#[derive(Clone, Debug)]
pub struct PlayedScript {
    pub transcript: String,
    /// Failed assertions and violated rules.
    pub failures: Vec<ScriptFailure>,
}

/// Plays a scenario. The result is the same each time.
pub fn play(script: &Script, file: &str) -> PlayedScript {
    let mut player = Player::new(script, file);
    for line in &script.lines {
        if let Err(error) = player.line(line) {
            player.failures.push(error.at(file, line.number));
            break;
        }
        if player.world.violation().is_some() {
            break;
        }
    }
    player.close()
}

struct Player<'s> {
    script: &'s Script,
    file: &'s str,
    world: World,
    observations: Observations,
    transcript: Transcript,
    /// The assertions with their results.
    expected: Vec<(String, Result<(), String>)>,
    failures: Vec<ScriptFailure>,
}

impl<'s> Player<'s> {
    fn new(script: &'s Script, file: &'s str) -> Self {
        let mut world = World::new(script.design.clone(), script.servers, script.start(BEFORE));
        world.deploy_first_version();
        world.rng = Rng::new(script.seed);
        for number in 1..=super::names::RELEASES {
            world
                .releases
                .set(version(number), ReleaseBehaviour { takes: script.takes, ..ReleaseBehaviour::default() });
        }
        for release in &script.releases {
            for node in nodes_of(&release.groups, &world) {
                let failure = release.error.clone().map_or(ScriptedFailure::Invalid, ScriptedFailure::Fails);
                world.releases.script(release.version.clone(), node, failure);
            }
        }
        let mut observations = Observations::default();
        // Earlier grants do not count.
        observations.record(&world);
        let transcript = Transcript::new(script, &world);
        Self { script, file, world, observations, transcript, expected: Vec::new(), failures: Vec::new() }
    }

    fn line(&mut self, line: &Line) -> Result<(), ScriptError> {
        let action = match &line.what {
            Step::At(at, action) => {
                let at = BEFORE + *at;
                if at < self.world.now() {
                    let now = self.transcript.time(self.world.now());
                    return Err(ScriptError::new(format!("this time has passed: the scenario is at {now} already"))
                        .help("move the line up, or write: after TIME ACTION"));
                }
                self.run(at, None);
                action
            }
            Step::After(time, action) => {
                self.run(self.world.now() + *time, None);
                action
            }
            Step::When(assertion, action) => {
                self.wait(assertion)?;
                action
            }
            Step::Then(action) => action,
            Step::Until(assertion) => return self.wait(assertion),
            Step::Wait(time) => {
                self.run(self.world.now() + *time, None);
                return Ok(());
            }
            Step::Expect(assertion) => {
                let held = assertion.check(&mut self.world, &self.observations);
                if let Err(actual) = &held {
                    let what = format!("assertion failed: {actual}");
                    self.failures.push(ScriptError::new(what).at(self.file, line.number));
                }
                self.expected.push((line.text.trim_start_matches("expect ").to_owned(), held));
                return Ok(());
            }
        };
        if self.world.violation().is_some() {
            return Ok(());
        }
        action.run(&mut self.world, &self.script.strategy)?;
        self.observe();
        Ok(())
    }

    fn wait(&mut self, assertion: &Assertion) -> Result<(), ScriptError> {
        let end = self.world.now() + TIMEOUT;
        if self.run(end, Some(assertion)) || self.world.violation().is_some() {
            return Ok(());
        }
        let actual = assertion.check(&mut self.world, &self.observations).err().unwrap_or_default();
        Err(ScriptError::new(format!("timeout after {} hours of virtual time: {actual}", TIMEOUT.as_secs() / 3_600)))
    }

    /// Runs up to a time, or until an assertion holds. Returns whether it does.
    fn run(&mut self, until: SimTime, assertion: Option<&Assertion>) -> bool {
        loop {
            if assertion.is_some_and(|assertion| assertion.check(&mut self.world, &self.observations).is_ok()) {
                return true;
            }
            if self.world.violation().is_some() || !self.world.step(until) {
                return false;
            }
            self.observe();
        }
    }

    fn observe(&mut self) {
        if self.transcript.is_news(&self.world) {
            self.observations.record(&self.world);
            self.transcript.update(&mut self.world, &mut self.observations);
        }
    }

    fn close(mut self) -> PlayedScript {
        let (mut text, clock) = self.transcript.close();
        text.push_str(&super::transcript::summary(&self.world, &clock, &self.expected));
        if self.world.violation().is_none() {
            let until = self.world.now() + QUIET;
            self.world.run_until(until);
        }
        match self.world.violation() {
            None => text.push_str("\nNo rule was violated.\n"),
            Some(violation) => {
                text.push_str(&format!("\nVIOLATION of {violation}\n"));
                let what = format!("a rule was violated: {violation}");
                self.failures.push(ScriptError::new(what).at(self.file, 0));
            }
        }
        PlayedScript { transcript: text, failures: self.failures }
    }
}
