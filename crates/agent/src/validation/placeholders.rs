//! Fills the placeholders of checks, such as `{eth0}` and `{root}`.

use std::path::Path;

use muster_core::report::Interfaces;

/// Replaces `{name}` by the address of the interface, or by the node's root. An unknown name is an error, because the check
/// would test something else than intended.
pub(super) fn fill(text: &str, interfaces: &Interfaces, root: &Path) -> Result<String, String> {
    let mut filled = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('{') {
        let Some((name, behind)) = after.split_once('}') else { break };
        filled.push_str(before);
        match (name, interfaces.get(name)) {
            ("root", _) => filled.push_str(&root.display().to_string()),
            (_, Some(address)) => filled.push_str(address),
            (_, None) => {
                let known: Vec<_> = interfaces.keys().map(|name| format!("{{{name}}}")).collect();
                return Err(format!("unknown placeholder {{{name}}}: use {} or {{root}}", known.join(", ")));
            }
        }
        rest = behind;
    }
    filled.push_str(rest);
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_are_filled_and_unknown_ones_refused() {
        let interfaces = Interfaces::from([("eth0".into(), "10.0.0.1".into()), ("eth0.5".into(), "10.5.0.1".into())]);
        let fill = |text| fill(text, &interfaces, Path::new("/srv/x"));
        assert_eq!(fill("http://{eth0}:80/{eth0.5}").unwrap(), "http://10.0.0.1:80/10.5.0.1");
        assert_eq!(fill("{root}/run/a.pid").unwrap(), "/srv/x/run/a.pid");
        assert_eq!(fill("plain").unwrap(), "plain");
        assert_eq!(fill("half {").unwrap(), "half {");
        assert_eq!(fill("{eth1}:80").unwrap_err(), "unknown placeholder {eth1}: use {eth0}, {eth0.5} or {root}");
    }
}
