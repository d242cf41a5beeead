//! Text that came from nodes, made safe for a terminal: it may hold anything, escape sequences too.

/// The text in one line, without anything that steers a terminal.
pub fn one_line(text: &str) -> String {
    let words: Vec<String> = text.lines().map(without_controls).collect();
    words.join(" ").trim_end().to_owned()
}

/// One line of text without anything that steers a terminal.
pub fn without_controls(line: &str) -> String {
    let text = anstream::adapter::strip_str(line).to_string();
    text.replace('\t', "    ").chars().filter(|c| !c.is_control()).collect()
}
