//! Parquet -> records.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read as _, Seek as _};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use parquet::column::reader::ColumnReader;
use parquet::data_type::ByteArray;
use parquet::errors::ParquetError;
use parquet::file::reader::{ChunkReader, FileReader, RowGroupReader, SerializedFileReader};
use wp_base::event::{DeviceWork, Die, Event, Flags, Op, Record, Work};
use wp_base::{Sector, Span, Time};

use super::super::{ACTIONS, OPS, name, task_named};
use super::write::{is_of_all, op_name};
use super::*;

/// The first bytes of every Parquet file.
const MAGIC: [u8; 4] = *b"PAR1";

/// Most rows of a row group that is read: four times those that are written.
const GROUP_MAX: usize = 4 * GROUP;

/// Is a file a table, by its first bytes? Reads from the start, and goes back there. Errors: the
/// host's.
pub fn is_table(file: &mut File) -> io::Result<bool> {
    let mut first = [0; 4];
    let is_table = match file.read_exact(&mut first) {
        Ok(()) => first == MAGIC,
        Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => false,
        Err(e) => return Err(e),
    };
    file.rewind()?;
    Ok(is_table)
}

/// The values of a column in a row group, and where the next one is.
struct Values {
    texts: Vec<ByteArray>,
    numbers: Vec<i64>,
    truths: Vec<bool>,
    defined: Vec<i16>,
    repeated: Vec<i16>,
    /// The next value.
    value: usize,
    /// The next row, or element of a list.
    row: usize,
    is_of_all: bool,
}

impl Values {
    fn read(from: ColumnReader, place: usize, rows: usize) -> Result<Values, ParquetError> {
        let mut v = Values {
            texts: Vec::new(),
            numbers: Vec::new(),
            truths: Vec::new(),
            defined: Vec::new(),
            repeated: Vec::new(),
            value: 0,
            row: 0,
            is_of_all: is_of_all(place),
        };
        let (d, r) = (&mut v.defined, &mut v.repeated);
        let d = (!v.is_of_all).then_some(d);
        let r = (COLUMNS[place].kind == Kind::Numbers).then_some(r);
        let (read, ..) = match from {
            ColumnReader::ByteArrayColumnReader(mut from) => {
                from.read_records(rows, d, r, &mut v.texts)?
            }
            ColumnReader::Int64ColumnReader(mut from) => {
                from.read_records(rows, d, r, &mut v.numbers)?
            }
            ColumnReader::BoolColumnReader(mut from) => {
                from.read_records(rows, d, r, &mut v.truths)?
            }
            _ => return Err(ParquetError::General("a column of another type".to_owned())),
        };
        match read == rows {
            true => Ok(v),
            false => Err(ParquetError::General(format!("{read} of {rows} rows"))),
        }
    }

    /// The place of the value of the next row. `None`: it has none.
    fn next(&mut self) -> Option<usize> {
        let is_there = self.is_of_all || self.defined.get(self.row) == Some(&1);
        self.row += 1;
        let at = self.value;
        self.value += usize::from(is_there);
        is_there.then_some(at)
    }

    /// The list of the next row.
    fn next_list(&mut self) -> Vec<i64> {
        let mut list = Vec::new();
        let mut is_first = true;
        while self.row < self.defined.len() && (is_first || self.repeated[self.row] > 0) {
            is_first = false;
            list.extend(self.next().and_then(|at| self.numbers.get(at)).copied());
        }
        list
    }
}

/// A row: a value of each column, or none.
struct Row<'a> {
    texts: [Option<&'a str>; COLUMNS.len()],
    numbers: [Option<i64>; COLUMNS.len()],
    truths: [Option<bool>; COLUMNS.len()],
    lists: [Vec<i64>; 3],
}

impl<'a> Row<'a> {
    fn of(columns: &'a mut [Values], at: &mut [Option<usize>]) -> Result<Row<'a>, String> {
        let mut row = Row {
            texts: [None; COLUMNS.len()],
            numbers: [None; COLUMNS.len()],
            truths: [None; COLUMNS.len()],
            lists: Default::default(),
        };
        for (place, column) in columns.iter_mut().enumerate() {
            match COLUMNS[place].kind {
                Kind::Numbers => row.lists[place - COMMANDS] = column.next_list(),
                _ => at[place] = column.next(),
            }
        }
        for (place, column) in columns.iter().enumerate() {
            let Some(at) = at[place] else { continue };
            match COLUMNS[place].kind {
                Kind::Text => {
                    let bytes = column.texts.get(at).map_or(&b""[..], ByteArray::data);
                    let text = std::str::from_utf8(bytes);
                    let wrong = |_| format!("`{}` is not UTF-8", COLUMNS[place].name);
                    row.texts[place] = Some(text.map_err(wrong)?);
                }
                Kind::Truth => row.truths[place] = column.truths.get(at).copied(),
                _ => row.numbers[place] = column.numbers.get(at).copied(),
            }
        }
        Ok(row)
    }

    fn text(&self, place: usize) -> Result<&'a str, String> {
        self.texts[place].ok_or_else(|| format!("no text `{}`", COLUMNS[place].name))
    }

    fn name(&self, place: usize) -> Result<&'static str, String> {
        name(self.text(place)?)
    }

    fn number(&self, place: usize) -> Result<u64, String> {
        let found = self.numbers[place].map(i64::cast_unsigned);
        found.ok_or_else(|| format!("no number `{}`", COLUMNS[place].name))
    }

    fn small(&self, place: usize) -> Result<u32, String> {
        let found = u32::try_from(self.number(place)?);
        found.map_err(|_| format!("`{}` is too large", COLUMNS[place].name))
    }

    fn truth(&self, place: usize) -> Result<bool, String> {
        self.truths[place].ok_or_else(|| format!("no truth value `{}`", COLUMNS[place].name))
    }

    fn op(&self) -> Result<Op, String> {
        let text = self.text(OP)?;
        let found = OPS.into_iter().find(|op| op_name(*op) == text);
        found.ok_or_else(|| format!("an unknown operation `{text}`"))
    }

    fn device(&self) -> Result<DeviceWork, String> {
        let what = self.text(NAME)?;
        let what = Work::ALL.into_iter().find(|w| w.name() == what);
        let die = match self.numbers[DIE] {
            None => None,
            Some(_) => Some(Die { channel: self.small(CHANNEL)?, die: self.small(DIE)? }),
        };
        let [commands, at, sectors] = &self.lists;
        let range =
            |(at, n): (&i64, &i64)| Some((Sector(at.cast_unsigned()), u32::try_from(*n).ok()?));
        let holds: Option<Vec<(Sector, u32)>> = at.iter().zip(sectors).map(range).collect();
        let holds = holds.filter(|_| at.len() == sectors.len());
        let work = DeviceWork {
            what: what.ok_or("an unknown work of a device")?,
            die,
            ready: Time(self.number(READY_NS)?),
            from: Time(self.number(FROM_NS)?),
            to: Time(self.number(TO_NS)?),
            bus: Span(self.number(BUS_NS)?),
            cells: Span(self.number(CELLS_NS)?),
            bytes: self.number(BYTES)?,
            gc: self.truth(GC)?,
            commands: commands.iter().map(|id| id.cast_unsigned()).collect(),
            holds: holds.ok_or("`hold_sector` and `hold_sectors` are not pairs")?,
        };
        match work.ready > work.from || work.from > work.to {
            true => Err("it ends before it begins".to_owned()),
            false => Ok(work),
        }
    }

    fn event(&self, tasks: &mut BTreeSet<Rc<str>>) -> Result<Event, String> {
        Ok(match self.text(EVENT)? {
            "block" => {
                let letter = self.text(ACTION)?;
                let action = ACTIONS.into_iter().find(|a| letter.chars().eq([a.letter()]));
                Event::Block {
                    action: action.ok_or("an unknown action")?,
                    op: self.op()?,
                    flags: Flags(self.small(FLAGS)?),
                    at: Sector(self.number(SECTOR)?),
                    sectors: self.small(SECTORS)?,
                    extra: self.number(VALUE)?,
                }
            }
            "jbd2" => Event::Jbd2 {
                what: self.name(NAME)?,
                tid: self.small(ID)?,
                value: self.number(VALUE)?,
            },
            "cpu" => Event::Cpu { what: self.name(NAME)?, span: Span(self.number(DURATION)?) },
            "wakeup" => Event::Wakeup {
                task: task_named(self.text(TARGET)?, tasks),
                timer: self.truth(TIMER)?,
                on: self.name(NAME)?,
            },
            "fs" => Event::Fs {
                work: self.name(NAME)?,
                step: self.name(STEP)?,
                id: self.number(ID)?,
                why: self.name(WHY)?,
            },
            "switch_in" => Event::SwitchIn { core: self.small(CORE)? },
            "switch_out" => Event::SwitchOut { ready: self.truth(READY)? },
            "enter" => Event::SyscallEnter {
                name: self.name(NAME)?,
                id: self.number(ID)?,
                target: self.text(TARGET)?.into(),
            },
            "exit" => Event::SyscallExit {
                name: self.name(NAME)?,
                id: self.number(ID)?,
                value: self.number(VALUE)?,
                ok: self.truth(OK)?,
            },
            "mark" => Event::Mark { text: self.text(NAME)?.into() },
            "command" => Event::Command {
                id: self.number(ID)?,
                op: self.op()?,
                flags: Flags(self.small(FLAGS)?),
                at: Sector(self.number(SECTOR)?),
                sectors: self.small(SECTORS)?,
            },
            "command_end" => Event::CommandEnd { id: self.number(ID)?, ok: self.truth(OK)? },
            "device" => Event::Device(Box::new(self.device()?)),
            other => return Err(format!("an unknown event `{other}`")),
        })
    }
}

/// Classes of block events, by the place of the event.
pub type Classes = BTreeMap<usize, String>;

/// Reads the events of a table for which `wanted` holds, by their kind; `name` is what errors call
/// the file.
///
/// Errors: the host's; a file that is no table of events, with the row where that is known.
pub fn read(
    file: File,
    name: &str,
    wanted: &dyn Fn(&str) -> bool,
) -> io::Result<(Vec<Record>, Classes)> {
    read_from(file, name, wanted)
}

/// All events of a table in memory. Errors: as [`read`].
pub fn parse(bytes: Vec<u8>, name: &str) -> io::Result<(Vec<Record>, Classes)> {
    read_from(bytes::Bytes::from(bytes), name, &|_| true)
}

fn read_from<R: ChunkReader + 'static>(
    file: R,
    name: &str,
    wanted: &dyn Fn(&str) -> bool,
) -> io::Result<(Vec<Record>, Classes)> {
    let wrong =
        |what: String| io::Error::new(io::ErrorKind::InvalidData, format!("{name}: {what}"));
    // The library may panic at damaged bytes; nothing of it is used after that.
    let read = catch_unwind(AssertUnwindSafe(|| read_file(file, wanted)));
    match read {
        Ok(Ok(records)) => Ok(records),
        Ok(Err(what)) => Err(wrong(what)),
        Err(_) => Err(wrong("damaged: not a Parquet file of events".to_owned())),
    }
}

fn read_file<R: ChunkReader + 'static>(
    file: R,
    wanted: &dyn Fn(&str) -> bool,
) -> Result<(Vec<Record>, Classes), String> {
    let damaged = |e: ParquetError| format!("damaged: {e}");
    let file = SerializedFileReader::new(file).map_err(damaged)?;
    let schema = file.metadata().file_metadata().schema_descr_ptr();
    let names: Vec<&str> = schema.columns().iter().map(|c| c.name()).collect();
    let ours: Vec<&str> = COLUMNS.iter().map(|c| c.name).collect();
    if names != ours {
        return Err("its columns are not those of events".to_owned());
    }
    let mut out = (Vec::new(), Classes::new());
    let mut tasks = BTreeSet::new();
    let mut before = 0;
    for n in 0..file.num_row_groups() {
        let group = file.get_row_group(n).map_err(damaged)?;
        let rows = usize::try_from(group.metadata().num_rows()).unwrap_or(usize::MAX);
        if rows > GROUP_MAX {
            return Err(format!("a row group of {rows} rows, more than {GROUP_MAX}"));
        }
        read_group(&*group, rows, wanted, &mut tasks, &mut out)
            .map_err(|(row, what)| format!("row {}: {what}", before + row))?;
        before += rows;
    }
    Ok(out)
}

/// Reads the rows of a group. Errors: what is wrong, and with which row of it.
fn read_group(
    group: &dyn RowGroupReader,
    rows: usize,
    wanted: &dyn Fn(&str) -> bool,
    tasks: &mut BTreeSet<Rc<str>>,
    (out, classes): &mut (Vec<Record>, Classes),
) -> Result<(), (usize, String)> {
    let damaged = |e: ParquetError| (0, format!("damaged: {e}"));
    let column = |place| Values::read(group.get_column_reader(place)?, place, rows);
    let columns: Result<Vec<Values>, _> = (0..COLUMNS.len()).map(column).collect();
    let mut columns = columns.map_err(damaged)?;
    let mut at = [None; COLUMNS.len()];
    for n in 0..rows {
        let row = Row::of(&mut columns, &mut at).map_err(|what| (n, what))?;
        let wrong = |what: String| (n, what);
        if !wanted(row.text(EVENT).map_err(wrong)?) {
            continue;
        }
        let task = task_named(row.text(TASK).map_err(wrong)?, tasks);
        let event = row.event(tasks).map_err(wrong)?;
        let record = Record { at: Time(row.number(TIME).map_err(wrong)?), task, event };
        if out.last().is_some_and(|last| last.at > record.at) {
            return Err((n, "it is earlier than the row before".to_owned()));
        }
        if let Some(class) = row.texts[CLASS] {
            classes.insert(out.len(), class.to_owned());
        }
        out.push(record);
    }
    Ok(())
}
