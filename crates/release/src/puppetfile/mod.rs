//! Reads a `Puppetfile` of r10k: `forge`, `moduledir` and `mod`. It is Ruby; Muster evaluates no Ruby, and refuses
//! everything but these declarations with file and line.

mod lexer;

use std::collections::BTreeMap;
use std::iter::Peekable;
use std::vec::IntoIter;

use thiserror::Error;

use lexer::{LocatedToken, Token, tokens};

/// The file beside `release.yaml`.
pub const PUPPETFILE: &str = "Puppetfile";
/// Directory of modules without `moduledir` and `install_path`.
const MODULES: &str = "modules";
/// Options that do not change which files are installed where.
const IGNORED: [&str; 3] = ["exclude_spec", "default_branch_override", "use_shell_git"];

#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum PuppetfileError {
    #[error(
        "{PUPPETFILE}:{line}: {found} is Ruby code, which is not evaluated: write `forge`, `moduledir` and `mod` with plain \
         values only, or list the modules in repos.yaml"
    )]
    Ruby { line: usize, found: String },
    #[error("{PUPPETFILE}:{line}: {problem}")]
    Invalid { line: usize, problem: String },
}

/// The declarations of a `Puppetfile`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Puppetfile {
    pub forge: Option<String>,
    pub modules: Vec<PuppetfileModule>,
}

/// One `mod`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PuppetfileModule {
    /// Name of the module, without its owner.
    pub name: String,
    pub line: usize,
    /// Directory of the module in the release.
    pub dest: String,
    pub origin: ModuleOrigin,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ModuleOrigin {
    Git {
        source: String,
        /// A branch, a tag or a commit; `HEAD` without any of them.
        reference: String,
    },
    Forge {
        /// `owner/name`
        module: String,
        /// None: the newest version.
        version: Option<String>,
    },
    /// Part of the control repository.
    Local,
}

/// A value of an option.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Value {
    Text(String),
    Symbol(String),
    Word(String),
}

impl Puppetfile {
    pub fn parse(text: &str) -> Result<Self, PuppetfileError> {
        let mut parser = Parser { tokens: tokens(text)?.into_iter().peekable(), line: 1 };
        let (mut file, mut moduledir) = (Self::default(), MODULES.to_owned());
        while let Some(statement) = parser.statement()? {
            let Statement { line, word, values, options } = statement;
            let invalid = |problem: String| PuppetfileError::Invalid { line, problem };
            match (word.as_str(), values.as_slice()) {
                ("forge", [Value::Text(url)]) => file.forge = Some(url.clone()).filter(|url| !is_website(url)),
                ("moduledir", [Value::Text(path)]) => moduledir = relative(path).map_err(invalid)?,
                ("mod", [Value::Text(name), version @ ..]) => {
                    let module = module(name, version, options, &moduledir, line).map_err(invalid)?;
                    if let Some(other) = file.modules.iter().find(|other| other.dest == module.dest) {
                        let problem =
                            format!("{} goes to {:?}, as the module of line {}", module.name, module.dest, other.line);
                        return Err(invalid(problem));
                    }
                    file.modules.push(module);
                }
                _ => return Err(invalid(format!("`{word}` needs a text, such as `{word} '{}'`", example(&word)))),
            }
        }
        Ok(file)
    }
}

fn example(word: &str) -> &'static str {
    match word {
        "forge" => "https://forgeapi.puppet.com",
        "moduledir" => MODULES,
        _ => "puppetlabs/stdlib', '9.6.0",
    }
}

/// The web site of the Forge, whose API has another address.
fn is_website(url: &str) -> bool {
    let host = url.split("://").nth(1).unwrap_or(url).trim_end_matches('/');
    ["forge.puppet.com", "forge.puppetlabs.com", "forgeapi.puppetlabs.com"].contains(&host)
}

/// A relative path without `.` parts.
fn relative(path: &str) -> Result<String, String> {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    if path.starts_with('/') || parts.contains(&"..") {
        return Err(format!("{path:?} leads out of the release"));
    }
    Ok(parts.join("/"))
}

fn module(
    name: &str,
    version: &[Value],
    mut options: BTreeMap<String, Value>,
    moduledir: &str,
    line: usize,
) -> Result<PuppetfileModule, String> {
    let mut text = |key: &str| match options.remove(key) {
        None => Ok(None),
        Some(Value::Text(text)) => Ok(Some(text)),
        Some(Value::Symbol(symbol)) => Ok(Some(format!(":{symbol}"))),
        Some(Value::Word(word)) => Err(format!("{key} of {name} is `{word}` and should be a text")),
    };
    let owned = name.split_once(['/', '-']);
    let short = owned.map_or(name, |(_, short)| short).to_owned();
    let directory = text("install_path")?.map_or_else(|| Ok(moduledir.to_owned()), |path| relative(&path))?;
    let dest = if directory.is_empty() { short.clone() } else { format!("{directory}/{short}") };
    let (git, kind, explicit) = (text("git")?, text("type")?, text("version")?);
    let default_branch = text("default_branch")?;
    let references = ["ref", "tag", "branch", "commit"].map(&mut text);
    let references = references.into_iter().collect::<Result<Vec<_>, _>>()?;
    let local = match options.remove("local") {
        None => false,
        Some(Value::Word(word)) if word == "true" || word == "false" => word == "true",
        Some(_) => return Err(format!("local of {name} is neither true nor false")),
    };
    if let Some(unknown) = options.keys().find(|key| !IGNORED.contains(&key.as_str())) {
        return Err(format!("{name} has the option `{unknown}`, which is not supported"));
    }
    let origin = match (git, kind.as_deref().map(|kind| kind.trim_start_matches(':'))) {
        _ if local => ModuleOrigin::Local,
        (None, Some("local")) => ModuleOrigin::Local,
        (Some(source), None | Some("git")) => git_origin(name, source, references, default_branch)?,
        (None, None | Some("forge")) => {
            let Some((owner, short)) = owned else {
                return Err(format!(
                    "{name} has no source: write `git:`, `local: true`, or the owner as in 'owner/{name}'"
                ));
            };
            ModuleOrigin::Forge { module: format!("{owner}/{short}"), version: forge_version(name, version, explicit)? }
        }
        (_, Some(kind)) => return Err(format!("{name} has the type {kind:?}, which is not supported")),
    };
    Ok(PuppetfileModule { name: short, line, dest, origin })
}

fn git_origin(
    name: &str,
    source: String,
    references: Vec<Option<String>>,
    default_branch: Option<String>,
) -> Result<ModuleOrigin, String> {
    let mut given = references.into_iter().flatten();
    let (first, second) = (given.next(), given.next());
    if second.is_some() {
        return Err(format!("{name} has more than one of ref, tag, branch and commit"));
    }
    let reference = match first {
        // The branch of the control repository is not known in a release: the fallback applies.
        Some(first) if first.starts_with(':') => default_branch
            .ok_or_else(|| format!("{name} follows the branch of the control repository: add a `default_branch`"))?,
        Some(first) => first,
        None => default_branch.unwrap_or_else(|| "HEAD".to_owned()),
    };
    Ok(ModuleOrigin::Git { source, reference })
}

fn forge_version(name: &str, positional: &[Value], explicit: Option<String>) -> Result<Option<String>, String> {
    let version = match positional {
        [] => explicit,
        [Value::Text(version)] => Some(version.clone()),
        [Value::Symbol(symbol)] => Some(format!(":{symbol}")),
        [Value::Word(word)] if word == "nil" => None,
        _ => return Err(format!("the version of {name} is not a text")),
    };
    match version {
        Some(version) if matches!(version.as_str(), ":latest" | "latest") => Ok(None),
        Some(version) if !is_version(&version) => {
            Err(format!("{version:?} is not a version of {name}: write an exact one, such as '9.6.0', or :latest"))
        }
        version => Ok(version),
    }
}

/// An exact version as on the Forge: three numbers, and optionally a pre-release.
pub(crate) fn is_version(text: &str) -> bool {
    let (numbers, rest) = text.split_once('-').map_or((text, None), |(numbers, rest)| (numbers, Some(rest)));
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-');
    numbers.split('.').count() == 3
        && numbers.split('.').all(is_number)
        && rest.is_none_or(|rest| !rest.is_empty() && rest.bytes().all(legal))
}

struct Statement {
    line: usize,
    word: String,
    values: Vec<Value>,
    options: BTreeMap<String, Value>,
}

struct Parser {
    tokens: Peekable<IntoIter<LocatedToken>>,
    line: usize,
}

impl Parser {
    fn next(&mut self) -> Option<Token> {
        let LocatedToken { token, line } = self.tokens.next()?;
        self.line = line;
        Some(token)
    }

    fn skip_ends(&mut self) {
        while self.tokens.next_if(|next| next.token == Token::End).is_some() {}
    }

    fn ruby(&self, found: &Token) -> PuppetfileError {
        let found = match found {
            Token::Word(word) => format!("`{word}`"),
            Token::Other(char) => format!("`{char}`"),
            Token::Open | Token::Close => "a bracket here".to_owned(),
            Token::Text(text) => format!("{text:?} here"),
            Token::Symbol(name) | Token::Label(name) => format!("`{name}` here"),
            Token::Arrow => "`=>` here".to_owned(),
            Token::Comma => "a comma here".to_owned(),
            Token::End => "a line that ends here".to_owned(),
        };
        PuppetfileError::Ruby { line: self.line, found }
    }

    /// `word value, value, key => value, key: value`, with or without brackets.
    fn statement(&mut self) -> Result<Option<Statement>, PuppetfileError> {
        self.skip_ends();
        let Some(first) = self.next() else { return Ok(None) };
        let line = self.line;
        let is_known = |word: &str| matches!(word, "forge" | "moduledir" | "mod");
        let Token::Word(word) = &first else { return Err(self.ruby(&first)) };
        let word = if is_known(word) { word.clone() } else { return Err(self.ruby(&first)) };
        let mut statement = Statement { line, word, values: Vec::new(), options: BTreeMap::new() };
        let mut open = 0usize;
        loop {
            if open > 0 {
                self.skip_ends();
            }
            match self.next() {
                Some(Token::Open) => open += 1,
                Some(Token::Close) if open > 0 => open -= 1,
                Some(Token::Comma) => self.skip_ends(),
                Some(Token::Label(key)) => self.option(key, &mut statement)?,
                Some(Token::Text(key) | Token::Symbol(key)) if self.is_arrow_next() => {
                    self.next();
                    self.option(key, &mut statement)?;
                }
                Some(Token::Text(text)) => statement.values.push(Value::Text(text)),
                Some(Token::Symbol(name)) => statement.values.push(Value::Symbol(name)),
                Some(Token::Word(word)) if word == "nil" => statement.values.push(Value::Word(word)),
                Some(Token::End) | None if open == 0 => return Ok(Some(statement)),
                Some(token) => return Err(self.ruby(&token)),
                None => {
                    let problem = "a bracket is not closed".to_owned();
                    return Err(PuppetfileError::Invalid { line, problem });
                }
            }
        }
    }

    fn is_arrow_next(&mut self) -> bool {
        self.tokens.peek().is_some_and(|next| next.token == Token::Arrow)
    }

    fn option(&mut self, key: String, statement: &mut Statement) -> Result<(), PuppetfileError> {
        self.skip_ends();
        let value = match self.next() {
            Some(Token::Text(text)) => Value::Text(text),
            Some(Token::Symbol(name)) => Value::Symbol(name),
            Some(Token::Word(word)) if matches!(word.as_str(), "true" | "false" | "nil") => Value::Word(word),
            Some(token) => return Err(self.ruby(&token)),
            None => return Err(self.ruby(&Token::End)),
        };
        if value == Value::Word("nil".to_owned()) {
            return Ok(());
        }
        match statement.options.insert(key.clone(), value) {
            None => Ok(()),
            Some(_) => Err(PuppetfileError::Invalid { line: self.line, problem: format!("`{key}` is given twice") }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn git(source: &str, reference: &str) -> ModuleOrigin {
        ModuleOrigin::Git { source: source.into(), reference: reference.into() }
    }

    fn forge(module: &str, version: Option<&str>) -> ModuleOrigin {
        ModuleOrigin::Forge { module: module.into(), version: version.map(str::to_owned) }
    }

    #[test]
    fn declarations_are_read() {
        let file = Puppetfile::parse(
            "\
forge \"https://forge.example.org\" # comment
mod 'puppetlabs/stdlib', '9.6.0'
mod 'puppetlabs-concat', :latest
mod \"puppet/nginx\"
mod 'apache',
  :git    => 'https://git.example/apache.git',
  :tag => 'v5.5.0'

mod('nova',
  git: 'git@git.example:nova.git',
  branch: :control_branch,
  default_branch: 'stable', # the rest
)
mod 'ntp', { git: 'https://git.example/ntp', exclude_spec: true, 'commit' => '8df51aa' }
moduledir './thirdparty/'
mod 'plain', git: \"https://git.example/plain\", ref: nil
mod 'profile', local: true, install_path: 'site'
mod 'puppet/typed', type: 'forge', version: '1.0.0-rc.1'
",
        )
        .unwrap();
        assert_eq!(file.forge.as_deref(), Some("https://forge.example.org"));
        let found: Vec<_> = file.modules.iter().map(|module| (module.dest.as_str(), module.origin.clone())).collect();
        assert_eq!(
            found,
            [
                ("modules/stdlib", forge("puppetlabs/stdlib", Some("9.6.0"))),
                ("modules/concat", forge("puppetlabs/concat", None)),
                ("modules/nginx", forge("puppet/nginx", None)),
                ("modules/apache", git("https://git.example/apache.git", "v5.5.0")),
                ("modules/nova", git("git@git.example:nova.git", "stable")),
                ("modules/ntp", git("https://git.example/ntp", "8df51aa")),
                ("thirdparty/plain", git("https://git.example/plain", "HEAD")),
                ("site/profile", ModuleOrigin::Local),
                ("thirdparty/typed", forge("puppet/typed", Some("1.0.0-rc.1"))),
            ]
        );
        assert_eq!((file.modules[3].name.as_str(), file.modules[3].line), ("apache", 5));
        assert_eq!(Puppetfile::parse("forge 'https://forge.puppet.com/'\n").unwrap(), Puppetfile::default());
    }

    #[test]
    fn ruby_and_mistakes_are_refused_with_their_line() {
        for (text, expected) in [
            ("# x\nif true\n", "Puppetfile:2: `if` is Ruby code, which is not evaluated"),
            ("branch = ENV['X']\n", "Puppetfile:1: `branch` is Ruby code"),
            ("mod 'a', git: ENV['URL']\n", "Puppetfile:1: `ENV` is Ruby code"),
            ("\nmod 'a', git: \"https://#{host}/a\"\n", "Puppetfile:2: #{…} in a text is Ruby code"),
            ("mod 'a', git: 'x' if true\n", "Puppetfile:1: `if` is Ruby code"),
            ("%w[a b].each { |m| mod m }\n", "Puppetfile:1: `%` is Ruby code"),
            ("mod name\n", "Puppetfile:1: `name` is Ruby code"),
            ("mod\n", "Puppetfile:1: `mod` needs a text, such as `mod 'puppetlabs/stdlib', '9.6.0'`"),
            ("mod 'a', git: 'x\n", "Puppetfile:1: a text has no closing quote"),
            ("mod('a', git: 'x'\n", "Puppetfile:1: a bracket is not closed"),
            ("mod 'a'\n", "Puppetfile:1: a has no source: write `git:`, `local: true`, or the owner"),
            ("mod 'a/b', '>= 1.0.0 < 2.0.0'\n", "\">= 1.0.0 < 2.0.0\" is not a version of a/b: write an exact one"),
            ("mod 'a/b', svn: 'x'\n", "Puppetfile:1: a/b has the option `svn`, which is not supported"),
            ("mod 'a', git: 'x', tag: '1', ref: '2'\n", "a has more than one of ref, tag, branch and commit"),
            ("mod 'a', git: 'x', git: 'y'\n", "Puppetfile:1: `git` is given twice"),
            ("mod 'a', git: 'x', branch: :control_branch\n", "add a `default_branch`"),
            ("moduledir '../modules'\n", "Puppetfile:1: \"../modules\" leads out of the release"),
            ("mod 'a', git: 'x', install_path: '/etc'\n", "Puppetfile:1: \"/etc\" leads out of the release"),
            (
                "mod 'x/a', '1.0.0'\nmod 'y/a', '1.0.0'\n",
                "Puppetfile:2: a goes to \"modules/a\", as the module of line 1",
            ),
        ] {
            let problem = Puppetfile::parse(text).unwrap_err().to_string();
            assert!(problem.contains(expected), "{expected:?} is not in: {problem}");
        }
    }
}
