import re

import numpy as np
import pytest

from jpltd_jax.tables import read_classes, read_table, read_tables
from jpltd_jax.views import read_views

TEXT = "sample,TP53,BRCA1\np1,0.5,2\np2,NA,NA\np3,-1e3,0\n"


def write(folder, text, name="rna.csv"):
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


SPELLINGS = {
    "plain": ("rna.csv", TEXT),
    "tabs": ("rna.tsv", TEXT.replace(",", "\t")),
    "text": ("rna.txt", TEXT.replace(",", "\t")),
    "upper case name": ("rna.CSV", TEXT),
    "Excel": ("rna.csv", "\ufeff" + TEXT.replace("\n", "\r\n")),
    "quotes": ("rna.csv", '"sample","TP53","BRCA1"\n"p1","0.5","2"\n"p2","NA","NA"\n"p3","-1e3","0"\n'),
    "no name for the ids": ("rna.csv", TEXT.replace("sample,", '"",')),
    "R without a corner": ("rna.tsv", TEXT.replace("sample,", "").replace(",", "\t")),
    "spaces": ("rna.csv", TEXT.replace(",", " , ")),
    "an empty row": ("rna.csv", TEXT.replace("NA,NA", ",")),
    "an id alone": ("rna.csv", TEXT.replace("p2,NA,NA", "p2")),
    "other words": ("rna.csv", TEXT.replace("NA,NA", "nan,None")),
    "blank lines": ("rna.csv", TEXT.replace("p3", "\n,,\np3") + "\n\n"),
    "no end of line": ("rna.csv", TEXT.rstrip()),
}


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_spellings_of_one_table(tmp_path, spelling):
    name, text = SPELLINGS[spelling]
    table = read_table(write(tmp_path, text, name))
    assert (table.name, table.index, table.columns) == ("rna", ["p1", "p2", "p3"], ["TP53", "BRCA1"])
    np.testing.assert_array_equal(table.values, [[0.5, 2], [np.nan, np.nan], [-1000, 0]], strict=True)


@pytest.mark.parametrize("ids", ["index", "column"])
def test_parquet(tmp_path, ids):
    pd = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    frame = pd.DataFrame({"sample": ["p1", "p2", "p3"], "TP53": [0.5, None, -1e3], "BRCA1": [2, None, 0]})
    frame = frame.astype({"BRCA1": "Int64"})
    (frame.set_index("sample") if ids == "index" else frame).to_parquet(tmp_path / "rna.parquet")
    table = read_table(tmp_path / "rna.parquet")
    assert (table.name, table.index, table.columns) == ("rna", ["p1", "p2", "p3"], ["TP53", "BRCA1"])
    np.testing.assert_array_equal(table.values, [[0.5, 2], [np.nan, np.nan], [-1000, 0]], strict=True)
    frame.assign(sex=["f", "m", "f"]).to_parquet(tmp_path / "rna.parquet")
    with pytest.raises(ValueError, match=r"rna.parquet, column 'sex' does not hold real numbers"):
        read_table(tmp_path / "rna.parquet")
    write(tmp_path, "no parquet", "rna.parquet")
    with pytest.raises(ValueError, match=r"rna.parquet is not a readable Parquet file"):
        read_table(tmp_path / "rna.parquet")


BAD = {
    "NA among numbers": ("s,a,b\np1,1,2\np2,3,NA\n", "rna.csv, sample 'p2', column 'b' has no number; only whole rows"),
    "a gap": ("s,a,b\np1,1,2\np2,,3\n", "sample 'p2', column 'a' has no number"),
    "text": ("s,a,sex\np1,1,male\n", "rna.csv, sample 'p1', column 'sex': 'male' is not a number"),
    "decimal comma": ("s;a;b\np1;1,5;2\n", "has one column; expected sample ids and features, separated by commas"),
    "infinite": ("s,a\np1,1\np2,-inf\n", "sample 'p2', column 'a' is -inf; expected a finite number"),
    "too short": ("s,a,b\np1,1\n", "line 2, sample 'p1' has 1 values, but the first line names 2 features"),
    "too long": ("s,a\np1,1\np2,1,2\n", "line 3, sample 'p2' has 2 values, but the first line names 1 features"),
    "twice": ("s,a\np1,1\np1,2\n", "has the sample id 'p1' more than once"),
    "no id": ("s,a\np1,1\n,2\n", "line 3 has no sample id in its first column"),
    "empty": ("", "rna.csv is empty"),
    "header only": ("s,a\n", "rna.csv has no samples"),
    "binary": (b"\x89HDF\r\n\x1a\n\xff\xfe", "is not a readable table"),
    "endless cell": ('s,a\np1,"' + "1" * 140_000, "is not a readable table, after line .* larger than field limit"),
}


@pytest.mark.parametrize("name", BAD)
def test_defects_say_file_sample_and_column(tmp_path, name):
    text, message = BAD[name]
    with pytest.raises(ValueError, match=message):
        read_table(write(tmp_path, text))


def test_other_names_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"cannot tell the format of .*rna.xlsx: expected .*\.csv, \.tsv"):
        read_table(write(tmp_path, TEXT, "rna.xlsx"))
    for name in ("none.csv", "none.parquet"):
        with pytest.raises(FileNotFoundError, match=name):
            read_table(tmp_path / name)


def test_views_are_matched_by_id_and_named_after_files(tmp_path):
    first = write(tmp_path, "s,a\np1,1\np2,2\n", "rna.csv")
    second = write(tmp_path, "s\tb\tc\np3\t3\t4\np1\t5\t6\n", "mirna.tsv")
    views = read_views({table.name: table for table in read_tables([first, second])})
    assert (views.ids.tolist(), views.names, views.features) == (
        ["p1", "p2", "p3"],
        ("rna", "mirna"),
        (("a",), ("b", "c")),
    )
    np.testing.assert_array_equal(views.mask, [[True, True], [True, False], [False, True]])
    np.testing.assert_array_equal(views.matrices[1], [[5, 6], [0, 0], [3, 4]])


def test_files_that_do_not_go_together(tmp_path):
    first, second = write(tmp_path, TEXT), write(tmp_path, TEXT.replace("NA,NA", ","), "mirna.csv")
    with pytest.raises(ValueError, match="1 samples are missing in all files, 'p2' first: remove"):
        read_tables([first, second])
    with pytest.raises(ValueError, match="would both be the view 'rna': rename one"):
        read_tables([first, tmp_path / "rna.tsv"])


def test_columns_in_another_order(tmp_path):
    table = read_table(write(tmp_path, TEXT))
    turned = table.with_columns(["BRCA1", "TP53"])
    assert turned.columns == ["BRCA1", "TP53"]
    np.testing.assert_array_equal(turned.values, table.values[:, ::-1])
    for others in (["BRCA1"], ["BRCA1", "x"], ["BRCA1", "TP53", "x"]):
        assert table.with_columns(others) is table


def test_classes(tmp_path):
    path = write(tmp_path, "s,class\np1, basal\np2,NA\np3,her2\n")
    assert read_classes(path) == {"p1": "basal", "p3": "her2"}
    for text, message in [
        ("s,class\np1,a\np1,b\n", "has the sample id 'p1' more than once"),
        ("s,class\np1,a,b\n", "line 2 has 3 values; expected a sample id and a class"),
        ("s,class\n", "has no classes"),
    ]:
        with pytest.raises(ValueError, match=re.escape(message)):
            read_classes(write(tmp_path, text))
    with pytest.raises(ValueError, match="expected a table of classes that ends in"):
        read_classes(tmp_path / "x.npz")
