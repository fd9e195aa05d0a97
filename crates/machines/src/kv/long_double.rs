//! INCRBYFLOAT. Redis computes it with the x86 `long double`: 64 bits of mantissa, and 17 decimals
//! when printed. With `f64` the sum of 0.1 and 0.2 would print as 0.30000000000000004, not as 0.3;
//! so the sum is computed here in integers, the same on every machine. The results are those of
//! Redis on x86-64 for every decimal argument; hexadecimal ones, which Redis takes, are refused.

/// Redis reads numbers into a buffer of this size.
const MAX_TEXT_LEN: usize = 5 * 1024;
/// The exponent of the lowest mantissa bit of the largest finite number.
const MAX_EXPONENT: i32 = 16383 - 63;
/// The exponent of the lowest mantissa bit of the smallest number that does not round to zero. What
/// does is refused by `strtold`; sums as small as that are harmless, they print as zero.
const MIN_EXPONENT: i32 = -16446 - 63;

/// A number `mantissa * 2^exponent`, the mantissa having its highest bit set unless it is zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LongDouble {
    negative: bool,
    mantissa: u64,
    exponent: i32,
}

/// What a text spells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Parsed {
    Finite(LongDouble),
    /// `inf`: Redis reads it, but no sum with it is accepted.
    Infinite,
    Invalid,
}

pub(super) fn parse(text: &[u8]) -> Parsed {
    if text.len() >= MAX_TEXT_LEN {
        return Parsed::Invalid;
    }
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, text),
    };
    if digits.eq_ignore_ascii_case(b"inf") || digits.eq_ignore_ascii_case(b"infinity") {
        return Parsed::Infinite;
    }
    let number = decimal(digits).and_then(|(digits, exponent)| from_decimal(digits, exponent));
    match number {
        Some((mantissa, exponent)) => Parsed::Finite(LongDouble {
            negative,
            mantissa,
            exponent,
        }),
        None => Parsed::Invalid,
    }
}

impl LongDouble {
    /// The number of these parts, if there is such a number: what the log holds may be anything.
    pub(super) fn from_parts(negative: bool, mantissa: u64, exponent: i32) -> Option<LongDouble> {
        let valid = if mantissa == 0 {
            exponent == 0
        } else {
            mantissa >> 63 == 1 && (MIN_EXPONENT..=MAX_EXPONENT).contains(&exponent)
        };
        valid.then_some(LongDouble {
            negative,
            mantissa,
            exponent,
        })
    }

    pub(super) fn parts(self) -> (bool, u64, i32) {
        (self.negative, self.mantissa, self.exponent)
    }

    /// The sum, rounded to the nearest number, ties to the even one. `None` if it is not finite.
    pub(super) fn add(self, other: LongDouble) -> Option<LongDouble> {
        if other.mantissa == 0 {
            return Some(self);
        }
        if self.mantissa == 0 {
            return Some(other);
        }
        let order = |number: &LongDouble| (number.exponent, number.mantissa);
        let (large, small) = if order(&self) >= order(&other) {
            (self, other)
        } else {
            (other, self)
        };
        // The lowest of the 62 extra bits stands for everything below it: it is enough to tell on
        // which side of the middle between two numbers the sum lies.
        let shift = large.exponent.abs_diff(small.exponent).min(127);
        let (a, b) = (
            u128::from(large.mantissa) << 62,
            u128::from(small.mantissa) << 62,
        );
        let b = b >> shift | u128::from(b.trailing_zeros() < shift);
        let sum = if large.negative == small.negative {
            a + b
        } else {
            a - b
        };
        let (mantissa, exponent) = round(sum, large.exponent - 62, false)?;
        Some(LongDouble {
            negative: large.negative && mantissa != 0,
            mantissa,
            exponent,
        })
    }

    /// The number with at most 17 decimals and no zeros at their end.
    pub(super) fn text(self) -> String {
        const UNIT: u128 = 100_000_000_000_000_000;
        let mut text = if self.exponent >= 0 {
            let mut whole = Big::from(u128::from(self.mantissa));
            whole.shift_left(self.exponent as u32);
            whole.decimal()
        } else {
            let scaled =
                shift_right_rounded(u128::from(self.mantissa) * UNIT, -self.exponent as u32);
            let text = format!("{}.{:017}", scaled / UNIT, scaled % UNIT);
            text.trim_end_matches('0').trim_end_matches('.').to_owned()
        };
        if self.negative && text != "0" {
            text.insert(0, '-');
        }
        text
    }
}

/// The digits of `12.5e3` without the point, and the power of ten that they count.
fn decimal(text: &[u8]) -> Option<(Vec<u8>, i64)> {
    let is_exponent = |byte: &u8| matches!(byte, b'e' | b'E');
    let (number, exponent) = match text.iter().position(is_exponent) {
        Some(at) => (&text[..at], exponent(&text[at + 1..])?),
        None => (text, 0),
    };
    let mut parts = number.splitn(2, |&byte| byte == b'.');
    let (whole, fraction) = (
        parts.next().unwrap_or_default(),
        parts.next().unwrap_or_default(),
    );
    let digits = [whole, fraction].concat();
    let valid = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    valid.then(|| (digits, exponent - fraction.len() as i64))
}

fn exponent(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, text),
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    // Far beyond every finite number, and far from the limits of the sums made with it.
    let add = |sum: i64, digit: &u8| (sum * 10 + i64::from(digit - b'0')).min(1_000_000);
    let magnitude = digits.iter().fold(0, add);
    Some(if negative { -magnitude } else { magnitude })
}

/// The mantissa and exponent nearest to `digits * 10^power`.
fn from_decimal(digits: Vec<u8>, power: i64) -> Option<(u64, i32)> {
    let zeros = digits.iter().take_while(|&&digit| digit == b'0').count();
    let digits = &digits[zeros..];
    if digits.is_empty() {
        return Some((0, 0));
    }
    // The largest number has 4933 digits, the smallest one 4950 zeros behind the point.
    if !(-4960..=4940).contains(&(digits.len() as i64 + power)) {
        return None;
    }
    let (mut numerator, mut denominator) = (Big::from(0), Big::from(1));
    for group in digits.chunks(9) {
        let value = group
            .iter()
            .fold(0, |sum, digit| sum * 10 + u32::from(digit - b'0'));
        numerator.multiply_add(10u32.pow(group.len() as u32), value);
    }
    let scaled = if power >= 0 {
        &mut numerator
    } else {
        &mut denominator
    };
    (0..power.abs() / 9).for_each(|_| scaled.multiply_add(1_000_000_000, 0));
    scaled.multiply_add(10u32.pow((power.abs() % 9) as u32), 0);
    // Makes the quotient 66 or 67 bits long: 64 of mantissa, and some to round by.
    let shift = 66 + i64::from(denominator.bits()) - i64::from(numerator.bits());
    let scaled = if shift >= 0 {
        &mut numerator
    } else {
        &mut denominator
    };
    scaled.shift_left(shift.unsigned_abs() as u32);
    let mut quotient: u128 = 0;
    denominator.shift_left(67);
    for _ in 0..68 {
        let fits = numerator.subtract_if_not_less(&denominator);
        quotient = quotient << 1 | u128::from(fits);
        denominator.shift_right_one();
    }
    round(quotient, -shift as i32, !numerator.is_zero())
        .filter(|(_, exponent)| *exponent >= MIN_EXPONENT)
}

/// `value * 2^exponent`, plus something below one `2^exponent` if `more`, with 64 bits of mantissa.
fn round(value: u128, exponent: i32, more: bool) -> Option<(u64, i32)> {
    if value == 0 {
        return Some((0, 0));
    }
    let extra = (128 - value.leading_zeros()) as i32 - 64;
    if extra <= 0 {
        debug_assert!(!more, "the caller computes enough bits to round");
        return finite((value as u64) << -extra, exponent + extra);
    }
    // Shifting two bits up first keeps a place for what is below the value.
    let value = if extra < 62 {
        value << 2 | u128::from(more)
    } else {
        value | u128::from(more)
    };
    let extra_bits = if extra < 62 { extra + 2 } else { extra } as u32;
    let rounded = shift_right_rounded(value, extra_bits);
    match u64::try_from(rounded) {
        Ok(mantissa) => finite(mantissa, exponent + extra),
        Err(_) => finite(1 << 63, exponent + extra + 1),
    }
}

fn finite(mantissa: u64, exponent: i32) -> Option<(u64, i32)> {
    (exponent <= MAX_EXPONENT).then_some((mantissa, exponent))
}

/// `value / 2^shift`, ties to the even number.
fn shift_right_rounded(value: u128, shift: u32) -> u128 {
    if shift >= 128 {
        return 0;
    }
    let (floor, rest) = (value >> shift, value & ((1 << shift) - 1));
    let half = (1u128 << shift) >> 1;
    floor + u128::from(rest > half || rest == half && shift > 0 && floor & 1 == 1)
}

/// A natural number of any size, the lowest limb first and no zero limb last.
struct Big(Vec<u32>);

impl From<u128> for Big {
    fn from(value: u128) -> Big {
        let mut big = Big((0..4).map(|i| (value >> (32 * i)) as u32).collect());
        big.trim();
        big
    }
}

impl Big {
    fn trim(&mut self) {
        while self.0.last() == Some(&0) {
            self.0.pop();
        }
    }

    fn is_zero(&self) -> bool {
        self.0.is_empty()
    }

    fn bits(&self) -> u32 {
        match self.0.last() {
            Some(limb) => 32 * self.0.len() as u32 - limb.leading_zeros(),
            None => 0,
        }
    }

    fn multiply_add(&mut self, factor: u32, addend: u32) {
        let mut carry = u64::from(addend);
        for limb in &mut self.0 {
            carry += u64::from(*limb) * u64::from(factor);
            *limb = carry as u32;
            carry >>= 32;
        }
        if carry > 0 {
            self.0.push(carry as u32);
        }
    }

    fn shift_left(&mut self, bits: u32) {
        self.multiply_add(1 << (bits % 32), 0);
        if !self.is_zero() {
            self.0
                .splice(0..0, std::iter::repeat_n(0, bits as usize / 32));
        }
    }

    fn shift_right_one(&mut self) {
        let mut carry = 0;
        for limb in self.0.iter_mut().rev() {
            (*limb, carry) = (*limb >> 1 | carry, *limb << 31);
        }
        self.trim();
    }

    /// Subtracts `other` and says so, unless it is larger.
    fn subtract_if_not_less(&mut self, other: &Big) -> bool {
        let order = self.0.len().cmp(&other.0.len());
        if order
            .then_with(|| self.0.iter().rev().cmp(other.0.iter().rev()))
            .is_lt()
        {
            return false;
        }
        let mut borrow = false;
        for (i, limb) in self.0.iter_mut().enumerate() {
            let (difference, under) = limb.overflowing_sub(other.0.get(i).copied().unwrap_or(0));
            let (difference, under_too) = difference.overflowing_sub(u32::from(borrow));
            (*limb, borrow) = (difference, under || under_too);
        }
        self.trim();
        true
    }

    fn decimal(mut self) -> String {
        const GROUP: u32 = 1_000_000_000;
        let mut groups = Vec::new();
        while !self.is_zero() {
            let mut rest = 0;
            for limb in self.0.iter_mut().rev() {
                let value = rest << 32 | u64::from(*limb);
                *limb = (value / u64::from(GROUP)) as u32;
                rest = value % u64::from(GROUP);
            }
            self.trim();
            groups.push(rest);
        }
        let mut text = groups.pop().unwrap_or(0).to_string();
        groups
            .iter()
            .rev()
            .for_each(|group| text.push_str(&format!("{group:09}")));
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(text: &str) -> LongDouble {
        match parse(text.as_bytes()) {
            Parsed::Finite(number) => number,
            other => panic!("{text}: {other:?}"),
        }
    }

    const TWO_TO_127: &str = "170141183460469231731687303715884105728";

    /// Every expected text is what Redis 7.0.15 on x86-64 answered.
    #[test]
    fn sums_are_those_of_redis() {
        for (a, b, sum) in [
            ("10", "0.1", "10.1"),
            ("0.1", "0.2", "0.3"),
            ("0.6", "-0.6", "0"),
            ("3.0e3", "0", "3000"),
            ("3.14159265358979323846", "0", "3.14159265358979324"),
            ("-0", "0", "0"),
            ("1234567", "0.1", "1234567.10000000000002274"),
            // In the middle between two numbers, and hardly above it.
            (TWO_TO_127, "9223372036854775808", TWO_TO_127),
            (
                TWO_TO_127,
                "9223372036854775809",
                "170141183460469231750134047789593657344",
            ),
        ] {
            assert_eq!(number(a).add(number(b)).unwrap().text(), sum, "{a} + {b}");
        }
    }

    #[test]
    fn what_is_no_number_is_refused() {
        for text in [
            "", "abc", " 1", "1 ", "nan", ".", "e5", "1e", "1e5000", "-", "1e-5000", "1.2.3",
        ] {
            assert_eq!(parse(text.as_bytes()), Parsed::Invalid, "{text}");
        }
        assert_eq!(parse(b"-Infinity"), Parsed::Infinite);
        assert_eq!(number("1.1e4932").add(number("1.1e4932")), None);
    }

    #[test]
    fn parts_are_checked() {
        let (negative, mantissa, exponent) = number("-2.5").parts();
        assert_eq!(
            LongDouble::from_parts(negative, mantissa, exponent),
            Some(number("-2.5"))
        );
        assert_eq!(LongDouble::from_parts(false, 1, 0), None);
        assert_eq!(LongDouble::from_parts(false, 1 << 63, 1 << 30), None);
        assert_eq!(LongDouble::from_parts(false, 0, 1), None);
    }
}
