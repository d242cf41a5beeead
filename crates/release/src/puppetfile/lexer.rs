//! Tokens of a `Puppetfile`: the literals of Ruby that declarations need.

use super::PuppetfileError;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Token {
    /// `'text'` or `"text"`, without interpolation.
    Text(String),
    /// `:name`
    Symbol(String),
    /// `name:` before a value.
    Label(String),
    Word(String),
    Arrow,
    Comma,
    /// `(` or `{`
    Open,
    /// `)` or `}`
    Close,
    /// End of a line, or `;`.
    End,
    /// Anything else is Ruby code.
    Other(char),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LocatedToken {
    pub(super) token: Token,
    pub(super) line: usize,
}

/// Splits the text into tokens.
pub(super) fn tokens(text: &str) -> Result<Vec<LocatedToken>, PuppetfileError> {
    let mut lexer = Lexer { rest: text, line: 1, tokens: Vec::new() };
    while let Some(first) = lexer.rest.chars().next() {
        lexer.next_token(first)?;
    }
    lexer.push(Token::End);
    Ok(lexer.tokens)
}

struct Lexer<'t> {
    rest: &'t str,
    line: usize,
    tokens: Vec<LocatedToken>,
}

impl Lexer<'_> {
    fn push(&mut self, token: Token) {
        self.tokens.push(LocatedToken { token, line: self.line });
    }

    fn skip(&mut self, bytes: usize) {
        self.rest = self.rest.get(bytes..).unwrap_or_default();
    }

    fn next_token(&mut self, first: char) -> Result<(), PuppetfileError> {
        let single = match first {
            '\n' => {
                self.push(Token::End);
                self.line += 1;
                self.skip(1);
                return Ok(());
            }
            '#' => {
                self.skip(self.rest.find('\n').unwrap_or(self.rest.len()));
                return Ok(());
            }
            '\'' | '"' => return self.text(first),
            ':' => return self.symbol(),
            '=' if self.rest.starts_with("=>") => {
                self.push(Token::Arrow);
                self.skip(2);
                return Ok(());
            }
            ',' => Some(Token::Comma),
            ';' => Some(Token::End),
            '(' | '{' => Some(Token::Open),
            ')' | '}' => Some(Token::Close),
            _ if first.is_whitespace() => None,
            // A line that continues.
            '\\' if self.rest.starts_with("\\\n") => {
                self.line += 1;
                self.skip(2);
                return Ok(());
            }
            _ if is_word(first) => {
                self.word();
                return Ok(());
            }
            other => Some(Token::Other(other)),
        };
        if let Some(token) = single {
            self.push(token);
        }
        self.skip(first.len_utf8());
        Ok(())
    }

    fn word(&mut self) {
        let end = self.rest.find(|char: char| !is_word(char)).unwrap_or(self.rest.len());
        let word = self.rest.get(..end).unwrap_or_default().to_owned();
        self.skip(end);
        if self.rest.starts_with(':') && !self.rest.starts_with("::") {
            self.skip(1);
            self.push(Token::Label(word));
        } else {
            self.push(Token::Word(word));
        }
    }

    /// `:name` or `:'name'`.
    fn symbol(&mut self) -> Result<(), PuppetfileError> {
        self.skip(1);
        match self.rest.chars().next() {
            Some(quote @ ('\'' | '"')) => {
                self.text(quote)?;
                if let Some(LocatedToken { token, .. }) = self.tokens.last_mut()
                    && let Token::Text(text) = token
                {
                    *token = Token::Symbol(std::mem::take(text));
                }
            }
            Some(first) if is_word(first) => {
                let end = self.rest.find(|char: char| !is_word(char)).unwrap_or(self.rest.len());
                let name = self.rest.get(..end).unwrap_or_default().to_owned();
                self.push(Token::Symbol(name));
                self.skip(end);
            }
            Some(_) | None => self.push(Token::Other(':')),
        }
        Ok(())
    }

    fn text(&mut self, quote: char) -> Result<(), PuppetfileError> {
        let (start, mut text) = (self.line, String::new());
        let mut chars = self.rest.char_indices().skip(1).peekable();
        while let Some((at, char)) = chars.next() {
            match char {
                '\\' => {
                    let Some((_, escaped)) = chars.next() else { break };
                    // Other escapes do not occur in names, addresses and refs.
                    if !matches!(escaped, '\\' | '\'' | '"') {
                        text.push('\\');
                    }
                    text.push(escaped);
                }
                '#' if quote == '"' && chars.peek().is_some_and(|(_, next)| *next == '{') => {
                    return Err(PuppetfileError::Ruby { line: start, found: "#{…} in a text".to_owned() });
                }
                '\n' => break,
                _ if char == quote => {
                    self.push(Token::Text(text));
                    self.skip(at + 1);
                    return Ok(());
                }
                _ => text.push(char),
            }
        }
        Err(PuppetfileError::Invalid { line: start, problem: "a text has no closing quote".to_owned() })
    }
}

fn is_word(char: char) -> bool {
    char.is_ascii_alphanumeric() || matches!(char, '_' | '?' | '!')
}
