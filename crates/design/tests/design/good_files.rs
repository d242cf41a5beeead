//! Valid files: their result, including warnings.

use std::fmt::Write;

use muster_design::environment::Environment;

use crate::{files, snapshot_beside};

#[test]
fn each_file_becomes_these_nodes() {
    for file in files("good") {
        let accepted = Environment::read(&file).unwrap_or_else(|findings| panic!("{findings}"));
        let environment = accepted.value;
        let mut text = format!("environment {}", environment.name);
        if let Some(stack) = &environment.stack {
            write!(text, ", stack {stack}").unwrap();
        }
        text.push('\n');
        for node in environment.nodes() {
            writeln!(text, "{}", serde_json::to_string(&node).unwrap()).unwrap();
        }
        let order: Vec<_> = environment.in_start_order().map(|role| role.role.as_str()).collect();
        writeln!(text, "start order: {}", order.join(", ")).unwrap();
        if let Some(strategy) = &environment.rollout {
            assert_eq!(strategy.check(), Ok(()));
            writeln!(text, "rollout: {}", serde_json::to_string_pretty(strategy).unwrap()).unwrap();
        }
        if !accepted.warnings.is_empty() {
            write!(text, "\n{}", accepted.warnings).unwrap();
        }
        snapshot_beside(&file, &text);
    }
}
