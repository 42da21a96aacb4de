//! `random_distribution`: the words of the option.
//!
//! Source: fio's manual, and what the installed fio refuses (`--parse-only`).

use super::job::{Distribution, Job};
use super::sequence::{Until, Zone};
use super::value;

/// Most zones of a direction: a number from 1 to 100 chooses one.
const ZONES_MAX: usize = 100;

/// A number with up to six decimals, in millionths.
fn millionths(text: &str) -> Result<u64, String> {
    let n: f64 = text.trim().parse().map_err(|_| format!("`{text}` is not a number"))?;
    match (0.0..=1e6).contains(&n) {
        true => Ok((n * 1e6).round() as u64),
        false => Err(format!("`{text}`: from 0 to 1000000")),
    }
}

/// Sets it: `zipf:THETA[:CENTER]`, `pareto:H[:CENTER]`, `normal:DEVIATION[:CENTER]`,
/// `zoned:ACCESS/SIZE:...`, `zoned_abs:ACCESS/SIZE:...`, by direction.
pub fn set(text: &str, job: &mut Job) -> Result<(), String> {
    let (word, rest) = text.split_once(':').unwrap_or((text, ""));
    if let "zoned" | "zoned_abs" = word.trim() {
        let is_bytes = word.trim() == "zoned_abs";
        let mut zones: [Vec<Zone>; 3] = Default::default();
        let kb_base = job.kb_base;
        value::by_direction(rest, &mut zones, |t| zones_of(t, is_bytes, kb_base))?;
        if zones.iter().any(Vec::is_empty) {
            return Err("zones are needed: zoned:60/10:40/90".to_owned());
        }
        job.distribution = Distribution::Zoned(zones);
        return Ok(());
    }
    let mut parts = rest.split(':');
    let parameter = parts.next().filter(|t| !t.is_empty()).map(millionths).transpose()?;
    let center = parts.next().map(millionths).transpose()?;
    if parts.next().is_some() {
        return Err(format!("`{text}`: at most a parameter and a center"));
    }
    if center.is_some_and(|c| c > 1_000_000) {
        return Err(format!("`{text}`: the center is a share of the file, from 0 to 1"));
    }
    // The defaults are fio's.
    job.distribution = match word.trim() {
        "random" => Distribution::Random,
        "zipf" => match parameter.unwrap_or(1_100_000) {
            1_000_000 => return Err("zipf theta must be other than 1.0".to_owned()),
            0 => return Err("zipf theta must be above 0".to_owned()),
            theta => Distribution::Zipf(theta),
        },
        "pareto" => match parameter.unwrap_or(200_000) {
            h @ 1..1_000_000 => Distribution::Pareto(h),
            _ => return Err(format!("`{text}`: pareto takes a number between 0 and 1")),
        },
        "normal" | "gauss" => match parameter.unwrap_or(0) {
            deviation @ 0..100_000_000 => Distribution::Normal(deviation),
            _ => return Err(format!("`{text}`: a deviation in percent, below 100")),
        },
        other => {
            return Err(format!("`{other}`: random, zipf, pareto, normal, zoned or zoned_abs"));
        }
    };
    job.distribution_center = center;
    Ok(())
}

fn sum(numbers: impl Iterator<Item = u64>) -> u64 {
    numbers.fold(0, u64::saturating_add)
}

/// `ACCESS/SIZE:ACCESS/SIZE:...`: percentages of the operations, and of the file or bytes of it.
/// Percentages of the file may be left out: such zones share what the others leave, in whole
/// percent.
fn zones_of(text: &str, is_bytes: bool, kb_base: u64) -> Result<Vec<Zone>, String> {
    let mut parts = Vec::new();
    for part in text.split(':') {
        let (percent, size) = part
            .split_once('/')
            .ok_or_else(|| format!("`{part}`: write ACCESSES/SIZE, such as 60/10"))?;
        let percent = value::whole(percent.trim().trim_end_matches('%'))?;
        let size = match (is_bytes, size.trim()) {
            (true, "") => return Err(format!("`{part}`: a zone of zoned_abs needs its bytes")),
            (true, size) => Some(value::bytes(size, kb_base)?),
            (false, "") => None,
            (false, size) => Some(value::whole(size.trim_end_matches('%'))?),
        };
        parts.push((percent, size));
    }
    if parts.len() > ZONES_MAX {
        return Err(format!("at most {ZONES_MAX} zones"));
    }
    let accesses = sum(parts.iter().map(|p| p.0));
    if accesses != 100 {
        return Err(format!("`{text}`: the accesses add up to {accesses} %, not to 100"));
    }
    let sizes = sum(parts.iter().filter_map(|p| p.1));
    if is_bytes && sizes == u64::MAX {
        return Err(format!("`{text}` is too large"));
    }
    if !is_bytes && sizes > 100 {
        return Err(format!("`{text}`: the sizes add up to {sizes} %, more than 100"));
    }
    let missing = parts.iter().filter(|p| p.1.is_none()).count() as u64;
    let share = 100u64.saturating_sub(sizes).checked_div(missing).unwrap_or(0);
    let mut end = 0;
    let zone = |(percent, size): (u64, Option<u64>)| {
        end += size.unwrap_or(share);
        Zone { percent, until: if is_bytes { Until::Byte(end) } else { Until::Percent(end) } }
    };
    Ok(parts.into_iter().map(zone).collect())
}

#[cfg(test)]
mod tests {
    use super::super::{Action, Sequence, Variables, layout, parse};

    /// How often each block of 1 MiB in blocks of 4 KiB was drawn in 20000 operations, the most
    /// popular one first.
    fn counts(distribution: &str) -> Vec<u64> {
        let text = format!(
            "[a]\nrw=randread\nbs=4k\nsize=1m\nnumber_ios=20000\nio_size=1g\n\
             random_distribution={distribution}\n"
        );
        let file = parse("t.fio", text.as_bytes(), &|_| None, &Variables::default());
        assert!(!file.has_errors(), "{}", file.rendered());
        let job = &file.jobs[0];
        let plan = layout(job, &mut |_| super::super::setup::Existing::default()).expect("a plan");
        let mut sequence = Sequence::new(job, &plan, 0, false).expect("a sequence");
        let mut counts = vec![0u64; 256];
        loop {
            match sequence.next_action() {
                Action::Done => break,
                Action::Io { offset, .. } => counts[(offset / 4096) as usize] += 1,
                _ => {}
            }
        }
        counts.sort_by_key(|n| std::cmp::Reverse(*n));
        assert_eq!(counts.iter().sum::<u64>(), 20_000);
        counts
    }

    #[test]
    fn places_are_as_popular_as_the_distribution_says() {
        let even = counts("random");
        assert!(even[0] < 2 * even[255] + 60, "{even:?}");
        // The first of 256 ranks has 1 / zeta(256, 1.2) of all, the tenth 10^-1.2 of that.
        let zipf = counts("zipf:1.2");
        let zeta: f64 = (1..=256).map(|i| (1.0 / f64::from(i)).powf(1.2)).sum();
        let near = |n: u64, share: f64| (n as f64 / (share * 20_000.0) - 1.0).abs() < 0.15;
        assert!(near(zipf[0], 1.0 / zeta), "{zipf:?} {zeta}");
        assert!(near(zipf[9], 10f64.powf(-1.2) / zeta), "{zipf:?}");
        // Of pareto with 0.2, 80 % of the operations are in 20 % of the blocks.
        let pareto: u64 = counts("pareto:0.2").iter().take(51).sum();
        assert!((15_000..17_000).contains(&pareto), "{pareto}");
        let normal = counts("normal");
        assert!(normal[0] > 150 && normal[200] < 5, "{normal:?}");
    }

    #[test]
    fn what_fio_refuses_is_refused() {
        for text in [
            "zipf:1",
            "zipf:0",
            "pareto:1.5",
            "normal:100",
            "zoned",
            "zoned:50/50",
            "zoned:50/50:50/60",
            "zoned:50/50:25/",
            "zoned:/50:50/50",
            "zoned_abs:50/4k",
            "zoned_abs:50/4k:50/",
            "zoned_abs:50/:50/4k",
            "zipf:1.2:0.5:3",
            "zipf:x",
            "zipf:1.2:2",
        ] {
            let job = format!("[a]\nsize=1m\nrandom_distribution={text}\n");
            let file = parse("t.fio", job.as_bytes(), &|_| None, &Variables::default());
            assert!(file.has_errors() && !file.is_unsupported(), "{text}: {}", file.rendered());
        }
    }
}
