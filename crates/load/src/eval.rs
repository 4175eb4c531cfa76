//! Expressions evaluated, with pgbench's rules for kinds, NULL and overflow.

use crate::names::Names;
use crate::random::{hash_fnv1a, hash_murmur2, permute, Random};
use crate::script::expr::{Expr, Function};
use crate::value::{Outcome, Value};
use crate::variables::Variables;

/// What an expression may look at.
pub(crate) struct Context<'a> {
    pub(crate) variables: &'a Variables,
    pub(crate) names: &'a Names,
    pub(crate) random: &'a mut Random,
    /// Which command of which script evaluates, for `debug()`.
    pub(crate) place: (usize, usize),
}

const LEAST_GAUSSIAN: f64 = 2.0;
const LEAST_ZIPFIAN: f64 = 1.001;
const MOST_ZIPFIAN: f64 = 1000.0;

/// The value of an expression; or why there is none, in pgbench's words.
pub(crate) fn eval(expr: &Expr, context: &mut Context<'_>) -> Outcome<Value> {
    match expr {
        Expr::Constant(value) => Ok(*value),
        Expr::Variable(number) => context.variables.value(*number, context.names),
        Expr::Call(Function::And, of) => logic(of, false, context),
        Expr::Call(Function::Or, of) => logic(of, true, context),
        Expr::Call(Function::Case, of) => case(of, context),
        Expr::Call(function, of) => {
            // Enough for all but `least` and `greatest`: nothing is allocated for most calls.
            let mut few = [Value::Null; 3];
            let mut many = Vec::new();
            let values: &[Value] = if of.len() <= few.len() {
                for (value, expr) in few.iter_mut().zip(of) {
                    *value = eval(expr, context)?;
                }
                &few[..of.len()]
            } else {
                for expr in of {
                    many.push(eval(expr, context)?);
                }
                &many
            };
            call(*function, values, context)
        }
    }
}

/// AND (`decides`: false) and OR (true): the right side is evaluated only if the left one does not decide.
fn logic(of: &[Expr], decides: bool, context: &mut Context<'_>) -> Outcome<Value> {
    for expr in of {
        match eval(expr, context)? {
            Value::Null => return Ok(Value::Null),
            value if value.bool()? == decides => return Ok(Value::Bool(decides)),
            _ => {}
        }
    }
    Ok(Value::Bool(!decides))
}

/// Conditions and values in turns, and a value for when none is true.
fn case(of: &[Expr], context: &mut Context<'_>) -> Outcome<Value> {
    let (last, pairs) = of.split_last().ok_or("a CASE without a value")?;
    for pair in pairs.chunks_exact(2) {
        if eval(&pair[0], context)?.is_true() {
            return eval(&pair[1], context);
        }
    }
    eval(last, context)
}

fn call(function: Function, of: &[Value], context: &mut Context<'_>) -> Outcome<Value> {
    use Function as F;
    if of.contains(&Value::Null) && !matches!(function, F::Is | F::Debug) {
        return Ok(Value::Null);
    }
    let double = |value: f64| Ok(Value::Double(value));
    match function {
        F::Add | F::Sub | F::Mul | F::Div | F::Equal | F::NotEqual | F::LessEqual | F::Less
            if of.iter().any(|value| matches!(value, Value::Double(_))) =>
        {
            of_doubles(function, of[0].double()?, of[1].double()?)
        }
        F::Add | F::Sub | F::Mul | F::Div | F::Mod | F::Equal | F::NotEqual | F::LessEqual | F::Less => {
            of_ints(function, of[0].int()?, of[1].int()?)
        }
        F::BitAnd | F::BitOr | F::BitXor | F::ShiftLeft | F::ShiftRight => {
            let (left, right) = (of[0].int()?, of[1].int()?);
            Ok(Value::Int(match function {
                F::BitAnd => left & right,
                F::BitOr => left | right,
                F::BitXor => left ^ right,
                // As the processor shifts: by the lowest six bits.
                F::ShiftLeft => left.wrapping_shl(right as u32),
                _ => left.wrapping_shr(right as u32),
            }))
        }
        F::Not => Ok(Value::Bool(!of[0].bool()?)),
        F::Is => Ok(Value::Bool(of[0] == of[1])),
        F::Abs => match of[0] {
            Value::Int(value) => Ok(Value::Int(value.wrapping_abs())),
            value => double(value.double()?.abs()),
        },
        F::Debug => {
            let (script, command) = context.place;
            eprintln!("debug(script={script},command={}): {}", command + 1, of[0].described());
            Ok(of[0])
        }
        F::Pi => double(std::f64::consts::PI),
        F::Double => double(of[0].double()?),
        F::Sqrt => double(of[0].double()?.sqrt()),
        F::Ln => double(of[0].double()?.ln()),
        F::Exp => double(of[0].double()?.exp()),
        F::Pow => double(of[0].double()?.powf(of[1].double()?)),
        F::Int => Ok(Value::Int(of[0].int()?)),
        F::Least | F::Greatest => extremum(function == F::Least, of),
        F::Random | F::RandomGaussian | F::RandomExponential | F::RandomZipfian => random(function, of, context.random),
        F::HashFnv1a => Ok(Value::Int(hash_fnv1a(of[0].int()?, of[1].int()?))),
        F::HashMurmur2 => Ok(Value::Int(hash_murmur2(of[0].int()?, of[1].int()?))),
        F::Permute => {
            let (value, size, seed) = (of[0].int()?, of[1].int()?, of[2].int()?);
            if size <= 0 {
                return Err("permute size parameter must be greater than zero".to_owned());
            }
            Ok(Value::Int(permute(value, size, seed)))
        }
        F::And | F::Or | F::Case => Err("evaluated where its operands are".to_owned()),
    }
}

fn of_doubles(function: Function, left: f64, right: f64) -> Outcome<Value> {
    Ok(match function {
        Function::Add => Value::Double(left + right),
        Function::Sub => Value::Double(left - right),
        Function::Mul => Value::Double(left * right),
        Function::Div => Value::Double(left / right),
        Function::Equal => Value::Bool(left == right),
        Function::NotEqual => Value::Bool(left != right),
        Function::LessEqual => Value::Bool(left <= right),
        _ => Value::Bool(left < right),
    })
}

fn of_ints(function: Function, left: i64, right: i64) -> Outcome<Value> {
    let within =
        |value: Option<i64>, name: &str| value.map(Value::Int).ok_or_else(|| format!("bigint {name} out of range"));
    match function {
        Function::Add => within(left.checked_add(right), "add"),
        Function::Sub => within(left.checked_sub(right), "sub"),
        Function::Mul => within(left.checked_mul(right), "mul"),
        Function::Div | Function::Mod if right == 0 => Err("division by zero".to_owned()),
        Function::Div => within(left.checked_div(right), "div"),
        Function::Mod => Ok(Value::Int(left.wrapping_rem(right))),
        Function::Equal => Ok(Value::Bool(left == right)),
        Function::NotEqual => Ok(Value::Bool(left != right)),
        Function::LessEqual => Ok(Value::Bool(left <= right)),
        _ => Ok(Value::Bool(left < right)),
    }
}

/// Of doubles if one of them is a double, else of integers.
fn extremum(least: bool, of: &[Value]) -> Outcome<Value> {
    if of.iter().any(|value| matches!(value, Value::Double(_))) {
        let mut found = of[0].double()?;
        for value in &of[1..] {
            let value = value.double()?;
            // With C's macros, a NaN on the left gives way.
            found = match least {
                true if found < value => found,
                false if found > value => found,
                _ => value,
            };
        }
        return Ok(Value::Double(found));
    }
    let mut found = of[0].int()?;
    for value in &of[1..] {
        found = if least { found.min(value.int()?) } else { found.max(value.int()?) };
    }
    Ok(Value::Int(found))
}

fn random(function: Function, of: &[Value], random: &mut Random) -> Outcome<Value> {
    let (least, most) = (of[0].int()?, of[1].int()?);
    if least > most {
        return Err("empty range given to random".to_owned());
    }
    if most.checked_sub(least).and_then(|width| width.checked_add(1)).is_none() {
        return Err("random range is too large".to_owned());
    }
    if function == Function::Random {
        return Ok(Value::Int(random.between(least, most)));
    }
    let parameter = of[2].double()?;
    match function {
        Function::RandomGaussian if parameter < LEAST_GAUSSIAN || parameter.is_nan() => {
            Err(format!("gaussian parameter must be at least {LEAST_GAUSSIAN:.6} (not {parameter:.6})"))
        }
        Function::RandomZipfian if !(LEAST_ZIPFIAN..=MOST_ZIPFIAN).contains(&parameter) => Err(format!(
            "zipfian parameter must be in range [{LEAST_ZIPFIAN:.3}, {MOST_ZIPFIAN:.0}] (not {parameter:.6})"
        )),
        Function::RandomExponential if parameter <= 0.0 || parameter.is_nan() => {
            Err(format!("exponential parameter must be greater than zero (not {parameter:.6})"))
        }
        Function::RandomGaussian => Ok(Value::Int(random.gaussian(least, most, parameter))),
        Function::RandomZipfian => Ok(Value::Int(random.zipfian(least, most, parameter))),
        _ => Ok(Value::Int(random.exponential(least, most, parameter))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::script::Script;

    /// The value of an expression, as it goes to the server, or what is said of it.
    fn of(text: &str) -> String {
        let mut names = Names::default();
        let script = format!("\\set v {text}\nselect 1;");
        let script = match Script::parse("t", 1, &script, &mut names) {
            Ok(script) => script,
            Err(error) => return error.message,
        };
        let variables = Variables::new(names.count());
        let crate::script::Command::Set { value, .. } = &script.commands[0] else { panic!("a \\set") };
        let (names, mut random) = (&names, Random::new(1));
        let mut context = Context { variables: &variables, names, random: &mut random, place: (0, 0) };
        match eval(value, &mut context) {
            Ok(value) => {
                let mut out = Vec::new();
                value.write(&mut out);
                String::from_utf8(out).unwrap()
            }
            Err(said) => said,
        }
    }

    #[test]
    fn kinds_null_and_overflow_are_as_in_pgbench() {
        for (text, expected) in [
            ("7 / 2", "3"),
            ("-7 % 3", "-1"),
            ("7 / 2.0", "3.5"),
            ("5.5 % 2", "0"),
            ("1 = 1.0", "true"),
            ("null + 1", "NULL"),
            ("null and false", "NULL"),
            ("false and null", "false"),
            ("true or 1 / 0 = 1", "true"),
            ("null is null", "true"),
            ("1 << 65", "2"),
            ("1 / 0", "division by zero"),
            ("1 / 0.0", "inf"),
            ("-9223372036854775808 / -1", "bigint div out of range"),
            ("-9223372036854775808 % -1", "0"),
            ("9223372036854775807 + 1", "bigint add out of range"),
            ("true + 1", "cannot coerce boolean to int"),
            ("not 1", "cannot coerce int to boolean"),
            ("least(3, 1.5, 2)", "1.5"),
            ("greatest(3, 1, 2, 9, 4)", "9"),
            ("int(2.5) + int(3.5)", "6"),
            ("random(2, 1)", "empty range given to random"),
            ("random(-9223372036854775808, 0)", "random range is too large"),
            ("random_gaussian(1, 2, 1.9)", "gaussian parameter must be at least 2.000000 (not 1.900000)"),
            ("random_zipfian(1, 2, 1)", "zipfian parameter must be in range [1.001, 1000] (not 1.000000)"),
            ("permute(1, 0, 1)", "permute size parameter must be greater than zero"),
            (":nosuch", "undefined variable \"nosuch\""),
            ("case when null then 1 when 0 then 2 when 0.1 then 3 end", "3"),
            ("pow(2, 10)", "1024"),
            ("abs(-9223372036854775808)", "-9223372036854775808"),
        ] {
            assert_eq!(of(text), expected, "{text}");
        }
    }

    /// The values that PostgreSQL's own tests of pgbench expect.
    #[test]
    fn hashes_and_permutations_are_those_of_pgbench() {
        for (text, expected) in [
            ("hash(10, 5432)", "-5817877081768721676"),
            ("hash_murmur2(10, 5432)", "-5817877081768721676"),
            ("hash_fnv1a(10, 5432)", "-7793829335365542153"),
            ("permute(1, 1, 5432)", "0"),
        ] {
            assert_eq!(of(text), expected, "{text}");
        }
    }
}
