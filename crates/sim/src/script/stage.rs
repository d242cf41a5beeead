//! Plays a script: a world that is at rest, and then line after line.

use std::time::Duration;

use super::ending;
use super::names::everybody;
use super::read::{Line, Script, Step};
use super::sign::Sign;
use super::transcript::Transcript;
use super::trouble::{Complaint, Trouble};
use super::witness::Witness;
use crate::dice::Dice;
use crate::simulation::World;
use crate::simulation::agenda::Moment;
use crate::simulation::design::version;
use crate::simulation::releases::{Nature, Scripted};

/// How long a fleet has to come to its first version, before the story begins.
const BEFORE: Duration = Duration::from_secs(90);
/// Whatever is waited for longer than this never comes.
const PATIENCE: Duration = Duration::from_secs(24 * 3_600);
/// How long the world is left alone in the end, so that what is under way arrives before it is judged.
const QUIET: Duration = Duration::from_secs(60);

/// What came of a script.
#[derive(Clone, Debug)]
pub struct Told {
    pub transcript: String,
    /// What did not come true, and what happened that must not.
    pub troubles: Vec<Trouble>,
}

/// Lets a story happen. It is the same each time.
pub fn play(script: &Script, file: &str) -> Told {
    let mut stage = Stage::new(script, file);
    for line in &script.lines {
        if let Err(complaint) = stage.line(line) {
            stage.troubles.push(complaint.at(file, line.number));
            break;
        }
        if stage.world.violation().is_some() {
            break;
        }
    }
    stage.close()
}

struct Stage<'s> {
    script: &'s Script,
    file: &'s str,
    world: World,
    witness: Witness,
    page: Transcript,
    /// The expectations, and whether they came true.
    expected: Vec<(String, Result<(), String>)>,
    troubles: Vec<Trouble>,
}

impl<'s> Stage<'s> {
    fn new(script: &'s Script, file: &'s str) -> Self {
        let mut world = World::new(script.design.clone(), script.servers, script.start(BEFORE));
        world.bring_up();
        world.dice = Dice::new(script.seed);
        for number in 1..=super::names::RELEASES {
            world.releases.set(version(number), Nature { takes: script.takes, ..Nature::default() });
        }
        for release in &script.releases {
            for node in everybody(&release.groups, &world) {
                let ending = release.error.clone().map_or(Scripted::Invalid, Scripted::Fails);
                world.releases.script(release.version.clone(), node, ending);
            }
        }
        let mut witness = Witness::default();
        // What was granted before is not of this story.
        witness.look(&world);
        let page = Transcript::new(script, &world);
        Self { script, file, world, witness, page, expected: Vec::new(), troubles: Vec::new() }
    }

    fn line(&mut self, line: &Line) -> Result<(), Complaint> {
        let deed = match &line.what {
            Step::At(at, deed) => {
                let at = BEFORE + *at;
                if at < self.world.now() {
                    let now = self.page.time(self.world.now());
                    return Err(Complaint::new(format!("it is {now} already: what stands below happens later"))
                        .help("put the line further up, or write: after TIME DEED"));
                }
                self.run(at, None);
                deed
            }
            Step::After(time, deed) => {
                self.run(self.world.now() + *time, None);
                deed
            }
            Step::When(sign, deed) => {
                self.wait(sign)?;
                deed
            }
            Step::Then(deed) => deed,
            Step::Until(sign) => return self.wait(sign),
            Step::Wait(time) => {
                self.run(self.world.now() + *time, None);
                return Ok(());
            }
            Step::Expect(sign) => {
                let held = sign.holds(&mut self.world, &self.witness);
                if let Err(instead) = &held {
                    let what = format!("this is not so: {instead}");
                    self.troubles.push(Complaint::new(what).at(self.file, line.number));
                }
                self.expected.push((line.text.trim_start_matches("expect ").to_owned(), held));
                return Ok(());
            }
        };
        if self.world.violation().is_some() {
            return Ok(());
        }
        deed.happens(&mut self.world, &self.script.strategy)?;
        self.look();
        Ok(())
    }

    fn wait(&mut self, sign: &Sign) -> Result<(), Complaint> {
        let end = self.world.now() + PATIENCE;
        if self.run(end, Some(sign)) || self.world.violation().is_some() {
            return Ok(());
        }
        let instead = sign.holds(&mut self.world, &self.witness).err().unwrap_or_default();
        Err(Complaint::new(format!("this never came, in {} hours: {instead}", PATIENCE.as_secs() / 3_600)))
    }

    /// Lets the world go on, up to a moment or until something is so; says whether it is.
    fn run(&mut self, until: Moment, sign: Option<&Sign>) -> bool {
        loop {
            if sign.is_some_and(|sign| sign.holds(&mut self.world, &self.witness).is_ok()) {
                return true;
            }
            if self.world.violation().is_some() || !self.world.step(until) {
                return false;
            }
            self.look();
        }
    }

    fn look(&mut self) {
        if self.page.is_news(&self.world) {
            self.witness.look(&self.world);
            self.page.look(&mut self.world, &mut self.witness);
        }
    }

    fn close(mut self) -> Told {
        let (mut text, clock) = self.page.close();
        text.push_str(&ending::told(&self.world, &clock, &self.expected));
        if self.world.violation().is_none() {
            let until = self.world.now() + QUIET;
            self.world.run_until(until);
        }
        match self.world.violation() {
            None => text.push_str("\nNothing happened that must never happen.\n"),
            Some(violation) => {
                text.push_str(&format!("\nVIOLATION of {violation}\n"));
                let what = format!("something happened that must never happen: {violation}");
                self.troubles.push(Complaint::new(what).at(self.file, 0));
            }
        }
        Told { transcript: text, troubles: self.troubles }
    }
}
