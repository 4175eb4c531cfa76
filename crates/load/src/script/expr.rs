//! Expressions of `\set`, `\if` and `\elif`: pgbench's grammar, with the binding of its operators.

use super::token::{tokens, Token};
use crate::names::Names;
use crate::value::Value;

/// An expression.
#[derive(Debug, Clone, PartialEq)]
pub enum Expr {
    /// Itself.
    Constant(Value),
    /// A variable by its number.
    Variable(usize),
    /// A function or operator of these.
    Call(Function, Vec<Expr>),
}

/// Functions and operators.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)] // named as pgbench names them
pub enum Function {
    Add,
    Sub,
    Mul,
    Div,
    Mod,
    Equal,
    NotEqual,
    LessEqual,
    Less,
    BitAnd,
    BitOr,
    BitXor,
    ShiftLeft,
    ShiftRight,
    And,
    Or,
    Not,
    Is,
    Case,
    Abs,
    Least,
    Greatest,
    Debug,
    Pi,
    Sqrt,
    Ln,
    Exp,
    Int,
    Double,
    Pow,
    Random,
    RandomGaussian,
    RandomExponential,
    RandomZipfian,
    HashFnv1a,
    HashMurmur2,
    Permute,
}

/// Functions by name, with the least and largest number of arguments.
const FUNCTIONS: [(&str, Function, usize, usize); 21] = [
    ("abs", Function::Abs, 1, 1),
    ("debug", Function::Debug, 1, 1),
    ("double", Function::Double, 1, 1),
    ("exp", Function::Exp, 1, 1),
    ("greatest", Function::Greatest, 1, MOST_ARGUMENTS),
    ("hash", Function::HashMurmur2, 1, 2),
    ("hash_fnv1a", Function::HashFnv1a, 1, 2),
    ("hash_murmur2", Function::HashMurmur2, 1, 2),
    ("int", Function::Int, 1, 1),
    ("least", Function::Least, 1, MOST_ARGUMENTS),
    ("ln", Function::Ln, 1, 1),
    ("mod", Function::Mod, 2, 2),
    ("permute", Function::Permute, 2, 3),
    ("pi", Function::Pi, 0, 0),
    ("pow", Function::Pow, 2, 2),
    ("power", Function::Pow, 2, 2),
    ("random", Function::Random, 2, 2),
    ("random_exponential", Function::RandomExponential, 3, 3),
    ("random_gaussian", Function::RandomGaussian, 3, 3),
    ("random_zipfian", Function::RandomZipfian, 3, 3),
    ("sqrt", Function::Sqrt, 1, 1),
];
const MOST_ARGUMENTS: usize = 16;
/// Functions whose last argument may be left out, and is this variable then.
const DEFAULT_SEED: &str = "default_seed";
/// How deep an expression may be nested: the evaluation is recursive.
const DEEPEST: usize = 500;

/// How strongly operators bind, weakest first.
mod binding {
    pub(super) const OR: u8 = 1;
    pub(super) const AND: u8 = 2;
    pub(super) const NOT: u8 = 3;
    pub(super) const IS: u8 = 4;
    pub(super) const COMPARE: u8 = 5;
    pub(super) const BITS: u8 = 6;
    pub(super) const SUM: u8 = 7;
    pub(super) const PRODUCT: u8 = 8;
    pub(super) const UNARY: u8 = 9;
}

/// Binary operators: name, function, binding, and whether the sides change places.
const OPERATORS: [(&str, Function, u8, bool); 19] = [
    ("or", Function::Or, binding::OR, false),
    ("and", Function::And, binding::AND, false),
    ("<", Function::Less, binding::COMPARE, false),
    ("<=", Function::LessEqual, binding::COMPARE, false),
    (">", Function::Less, binding::COMPARE, true),
    (">=", Function::LessEqual, binding::COMPARE, true),
    ("=", Function::Equal, binding::COMPARE, false),
    ("<>", Function::NotEqual, binding::COMPARE, false),
    ("!=", Function::NotEqual, binding::COMPARE, false),
    ("|", Function::BitOr, binding::BITS, false),
    ("#", Function::BitXor, binding::BITS, false),
    ("&", Function::BitAnd, binding::BITS, false),
    ("<<", Function::ShiftLeft, binding::BITS, false),
    (">>", Function::ShiftRight, binding::BITS, false),
    ("+", Function::Add, binding::SUM, false),
    ("-", Function::Sub, binding::SUM, false),
    ("*", Function::Mul, binding::PRODUCT, false),
    ("/", Function::Div, binding::PRODUCT, false),
    ("%", Function::Mod, binding::PRODUCT, false),
];

/// The expression of this text; or a message and the place of what is wrong.
pub(super) fn parse(text: &str, names: &mut Names) -> Result<Expr, (usize, String)> {
    let tokens = tokens(text)?;
    let mut parser = Parser { tokens: &tokens, at: 0, end: text.len(), names, depth: 0 };
    let parsed = parser.expr(0)?;
    if parser.at < tokens.len() {
        return Err(parser.wrong());
    }
    Ok(parsed.expr)
}

/// An expression, and how deep it is.
struct Parsed {
    expr: Expr,
    depth: usize,
}

struct Parser<'a> {
    tokens: &'a [(usize, Token)],
    at: usize,
    end: usize,
    names: &'a mut Names,
    depth: usize,
}

type Outcome<T> = Result<T, (usize, String)>;

impl Parser<'_> {
    fn place(&self) -> usize {
        self.tokens.get(self.at).map_or(self.end, |(place, _)| *place)
    }

    fn wrong(&self) -> (usize, String) {
        (self.place(), "syntax error".to_owned())
    }

    fn next(&self) -> Option<&Token> {
        self.tokens.get(self.at).map(|(_, token)| token)
    }

    /// The operator, keyword or sign that comes next.
    fn word(&self) -> Option<&str> {
        match self.next()? {
            Token::Word(word) => Some(word),
            Token::Sign(sign) => Some(sign),
            _ => None,
        }
    }

    fn take(&mut self, word: &str) -> bool {
        let is_next = self.word() == Some(word);
        self.at += usize::from(is_next);
        is_next
    }

    fn expect(&mut self, word: &str) -> Outcome<()> {
        if self.take(word) {
            Ok(())
        } else {
            Err(self.wrong())
        }
    }

    fn call(&self, function: Function, arguments: Vec<Parsed>) -> Outcome<Parsed> {
        let depth = 1 + arguments.iter().map(|argument| argument.depth).max().unwrap_or(0);
        if depth > DEEPEST {
            return Err((self.place(), format!("the expression is nested more than {DEEPEST} deep")));
        }
        let arguments = arguments.into_iter().map(|argument| argument.expr).collect();
        Ok(Parsed { expr: Expr::Call(function, arguments), depth })
    }

    /// An expression whose operators bind at least so strongly.
    fn expr(&mut self, least: u8) -> Outcome<Parsed> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err((self.place(), format!("the expression is nested more than {DEEPEST} deep")));
        }
        let mut left = self.operand()?;
        let mut compared = false;
        while let Some(word) = self.word() {
            if matches!(word, "is" | "isnull" | "notnull") && binding::IS >= least {
                left = self.tested(left)?;
                compared = false;
                continue;
            }
            let operator = OPERATORS.iter().find(|(name, ..)| *name == word);
            let Some(&(_, function, strength, swapped)) = operator else { break };
            if strength < least {
                break;
            }
            if strength == binding::COMPARE && compared {
                return Err(self.wrong()); // a < b < c has no meaning
            }
            self.at += 1;
            let right = self.expr(strength + 1)?;
            compared = strength == binding::COMPARE;
            left = self.call(function, if swapped { vec![right, left] } else { vec![left, right] })?;
        }
        self.depth -= 1;
        Ok(left)
    }

    /// What stands behind IS.
    fn tested(&mut self, left: Parsed) -> Outcome<Parsed> {
        let (mut negated, mut value) = (self.word() == Some("notnull"), Value::Null);
        let with_is = self.word() == Some("is");
        self.at += 1;
        if with_is {
            negated = self.take("not");
            value = match self.word() {
                Some("null") => Value::Null,
                Some("true") => Value::Bool(true),
                Some("false") => Value::Bool(false),
                _ => return Err(self.wrong()),
            };
            self.at += 1;
        }
        let is = self.call(Function::Is, vec![left, constant(value)])?;
        if negated {
            self.call(Function::Not, vec![is])
        } else {
            Ok(is)
        }
    }

    fn operand(&mut self) -> Outcome<Parsed> {
        let Some(token) = self.next().cloned() else { return Err(self.wrong()) };
        self.at += 1;
        match token {
            Token::Int(value) => Ok(constant(Value::Int(value))),
            Token::Double(value) => Ok(constant(Value::Double(value))),
            Token::Variable(name) => Ok(Parsed { expr: Expr::Variable(self.names.number(&name)), depth: 1 }),
            Token::Sign("(") => {
                let inner = self.expr(0)?;
                self.expect(")")?;
                Ok(inner)
            }
            Token::Sign("+") => self.expr(binding::UNARY),
            Token::Sign("-") if self.next() == Some(&Token::BeyondInt) => {
                self.at += 1;
                Ok(constant(Value::Int(i64::MIN)))
            }
            Token::Sign("-") => {
                let of = self.expr(binding::UNARY)?;
                self.call(Function::Sub, vec![constant(Value::Int(0)), of])
            }
            Token::Sign("~") => {
                let of = self.expr(binding::BITS + 1)?;
                self.call(Function::BitXor, vec![constant(Value::Int(-1)), of])
            }
            Token::Word(word) => self.named(&word),
            Token::Sign(_) | Token::BeyondInt => {
                self.at -= 1;
                Err(self.wrong())
            }
        }
    }

    fn named(&mut self, word: &str) -> Outcome<Parsed> {
        match word {
            "null" => return Ok(constant(Value::Null)),
            "true" => return Ok(constant(Value::Bool(true))),
            "false" => return Ok(constant(Value::Bool(false))),
            "not" => {
                let of = self.expr(binding::NOT)?;
                return self.call(Function::Not, vec![of]);
            }
            "case" => return self.case(),
            _ => {}
        }
        let place = self.tokens[self.at - 1].0;
        if self.word() != Some("(") || KEYWORDS.contains(&word) {
            return Err((place, "syntax error".to_owned()));
        }
        let Some((name, function, fewest, most)) = FUNCTIONS.iter().find(|(name, ..)| *name == word) else {
            return Err((place, format!("unexpected function name ({word})")));
        };
        self.at += 1;
        let mut arguments = Vec::new();
        if !self.take(")") {
            loop {
                arguments.push(self.expr(0)?);
                if self.take(")") {
                    break;
                }
                self.expect(",")?;
            }
        }
        if arguments.len() < *fewest || arguments.len() > *most {
            return Err((place, format!("unexpected number of arguments ({name})")));
        }
        let may_have_seed = matches!(function, Function::HashFnv1a | Function::HashMurmur2 | Function::Permute);
        if may_have_seed && arguments.len() < *most {
            arguments.push(Parsed { expr: Expr::Variable(self.names.number(DEFAULT_SEED)), depth: 1 });
        }
        self.call(*function, arguments)
    }

    fn case(&mut self) -> Outcome<Parsed> {
        let mut arguments = Vec::new();
        self.expect("when")?;
        loop {
            arguments.push(self.expr(0)?);
            self.expect("then")?;
            arguments.push(self.expr(0)?);
            if !self.take("when") {
                break;
            }
        }
        arguments.push(if self.take("else") { self.expr(0)? } else { constant(Value::Null) });
        self.expect("end")?;
        self.call(Function::Case, arguments)
    }
}

/// Words that are no function, even before a parenthesis.
const KEYWORDS: [&str; 9] = ["and", "or", "is", "isnull", "notnull", "when", "then", "else", "end"];

fn constant(value: Value) -> Parsed {
    Parsed { expr: Expr::Constant(value), depth: 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(expr: &Expr) -> String {
        match expr {
            Expr::Constant(value) => value.described().split(' ').next_back().unwrap_or_default().to_owned(),
            Expr::Variable(number) => format!(":{number}"),
            Expr::Call(function, of) => format!("{function:?}({})", of.iter().map(shown).collect::<Vec<_>>().join(",")),
        }
    }

    fn parsed(text: &str) -> String {
        parse(text, &mut Names::default()).map_or_else(|(at, said)| format!("{at}: {said}"), |expr| shown(&expr))
    }

    #[test]
    fn operators_bind_as_in_pgbench() {
        for (text, expected) in [
            ("1 + 2 * 3", "Add(1,Mul(2,3))"),
            ("1 - 2 - 3", "Sub(Sub(1,2),3)"),
            ("-2 * 3", "Mul(Sub(0,2),3)"),
            ("~ 1 + 2", "BitXor(-1,Add(1,2))"),
            ("~1 | 2", "BitOr(BitXor(-1,1),2)"),
            ("2 * ~ 1 + 3", "Mul(2,BitXor(-1,Add(1,3)))"),
            ("not 1 = 2 and true", "And(Not(Equal(1,2)),true)"),
            ("not null is null", "Not(Is(null,null))"),
            ("1 > 2", "Less(2,1)"),
            ("1 = 1 is not true", "Not(Is(Equal(1,1),true))"),
            ("null isnull or false notnull", "Or(Is(null,null),Not(Is(false,null)))"),
            ("1 << 2 & 3", "BitAnd(ShiftLeft(1,2),3)"),
            ("CASE WHEN 1 THEN 2 WHEN 3 THEN 4 END", "Case(1,2,3,4,null)"),
            ("case when :x then 2 else -:y end", "Case(:0,2,Sub(0,:1))"),
            ("-9223372036854775808", "-9223372036854775808"),
            ("Hash(1) % 5", "Mod(HashMurmur2(1,:0),5)"),
            ("random(1, \\\n10)", "Random(1,10)"),
            ("1e2 + .5 + 2.", "Add(Add(100,0.5),2)"),
            ("pi()", "Pi()"),
        ] {
            assert_eq!(parsed(text), expected, "{text}");
        }
    }

    #[test]
    fn what_pgbench_refuses_is_refused_with_its_place() {
        for (text, expected) in [
            ("", "0: syntax error"),
            ("1 +", "3: syntax error"),
            ("1 2", "2: syntax error"),
            ("1 = 2 = 3", "6: syntax error"),
            ("1 < 2 <= 3", "6: syntax error"),
            ("9223372036854775808", "0: syntax error"),
            ("99999999999999999999", "0: bigint constant overflow (99999999999999999999)"),
            ("1e999", "0: double constant overflow (1e999)"),
            ("nosuch(1)", "0: unexpected function name (nosuch)"),
            ("abs(1, 2)", "0: unexpected number of arguments (abs)"),
            ("least()", "0: unexpected number of arguments (least)"),
            ("random(1)", "0: unexpected number of arguments (random)"),
            ("a", "0: syntax error"),
            ("'a'", "0: unexpected character (\\')"),
            ("1 is 2", "5: syntax error"),
            ("case when 1 end", "12: syntax error"),
            (": x", "0: unexpected character (:)"),
        ] {
            assert_eq!(parsed(text), expected, "{text}");
        }
        let deep = "(".repeat(100_000);
        assert!(parsed(&deep).contains("nested"), "no stack is used up");
        let long = format!("1{}", "+1".repeat(100_000));
        assert!(parsed(&long).contains("nested"));
    }
}
