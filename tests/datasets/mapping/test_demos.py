"""The shipped mappings on the public demos, against what SQLite counts in the same files."""

from __future__ import annotations

import csv
import gzip
import sqlite3
from pathlib import Path

import pytest

from fedkge.datasets import load_graph
from fedkge.datasets.mapping import Draw, Report, mapping_of, materialize, open_source
from fedkge.datasets.mapping.materialization import Row
from fedkge.datasets.mapping.shipped.catalogue import SHIPPED
from fedkge.errors import DataError

RDF_TYPE = "http://www.w3.org/1999/02/22-rdf-syntax-ns#type"

# predicate: the distinct pairs that make its triples
EICU = {
    "hasGenderOf": "SELECT patientunitstayid, trim(gender) FROM patient WHERE trim(gender) <> ''",
    "hasEthnicityOf": "SELECT patientunitstayid, trim(ethnicity) FROM patient WHERE trim(ethnicity) <> ''",
    "staysAt": "SELECT patientunitstayid, hospitalid FROM patient",
    "isAdmittedIn": "SELECT patientunitstayid, unittype FROM patient",
    "isLocatedAt": "SELECT hospitalid, region FROM hospital WHERE region <> ''",
    "hasTreatmentOf": "SELECT patientunitstayid, treatmentid FROM treatment",
    "hasDrugOf": "SELECT patientunitstayid, trim(drugname) FROM admissiondrug WHERE trim(drugname) <> ''",
    "hasTypeOf": "SELECT trim(drugname), trim(specialtytype) FROM admissiondrug WHERE specialtytype <> ''",
    "hasAllergyOf": "SELECT patientunitstayid, trim(allergyname) FROM allergy WHERE trim(allergyname) <> ''",
    "hasAllergyTypeOf": "SELECT trim(allergyname), trim(allergytype) FROM allergy WHERE allergytype <> ''",
    "isProvidedBy": "SELECT patientunitstayid, specialty FROM careplancareprovider WHERE specialty <> ''",
    "isDiagnosedAs": "SELECT patientunitstayid, trim(diagnosisstring) FROM diagnosis",
    "hasICD9CODE": "SELECT trim(diagnosisstring), trim(icd9code) FROM diagnosis WHERE trim(icd9code) <> ''",
    "isTakenCareBy": "SELECT patientunitstayid, nurseassessid FROM nurseassessment",
    "hasAttributeOf": "SELECT nurseassessid, cellattribute FROM nurseassessment WHERE cellattribute <> ''",
}
EICU_CONFIDENTIAL = {"hasTreatmentOf", "hasDrugOf", "hasAllergyOf", "isDiagnosedAs", "isTakenCareBy"}

# table: the predicate from its stay or admission, and the columns of its own predicates
EVENTS = {
    "callout": (
        "hasCalloutEvent",
        {
            "hasCalloutSubmitWardID": "submit_wardid",
            "hasCalloutSubmitCareUnit": "submit_careunit",
            "hasCalloutCurrentWardID": "curr_wardid",
            "hasCalloutCurrentCareUnit": "curr_careunit",
            "hasCalloutToWardID": "callout_wardid",
            "hasCalloutService": "callout_service",
            "hasDischargeWardID": "discharge_wardid",
            "hasAcknowledgeStatus": "acknowledge_status",
            "hasRequestTeleStatus": "request_tele",
            "hasRequestRespStatus": "request_resp",
            "hasRequestCDIFFStatus": "request_cdiff",
            "hasRequestMRSAStatus": "request_mrsa",
            "hasRequestVREStatus": "request_vre",
            "hasCalloutStatus": "callout_status",
            "hasCalloutOutcome": "callout_outcome",
        },
    ),
    "cptevents": (
        "hasCPTEvent",
        {
            "hasCostCenter": "costcenter",
            "hasSectionHeader": "sectionheader",
            "hasSubSectionHeader": "subsectionheader",
        },
    ),
    "diagnoses_icd": ("hasICDDiagnosis", {"hasICDCode": "icd9_code"}),
    "procedures_icd": ("hasICDProcedure", {"hasICDCode": "icd9_code"}),
    "drgcodes": (
        "hasDRG",
        {
            "hasDRGCode": "drg_code",
            "hasDRGType": "drg_type",
            "hasDRGSeverity": "drg_severity",
            "hasDRGMortality": "drg_mortality",
        },
    ),
    "inputevents_mv": (
        "hasInputEvent",
        {
            "hasMeasurementType": "itemid",
            "hasCaregiver": "cgid",
            "hasOrderCategoryName": "ordercategoryname",
            "hasSecondaryOrderCategoryName": "secondaryordercategoryname",
            "hasOrderComponentTypeDescription": "ordercomponenttypedescription",
            "hasOrderCategoryDescription": "ordercategorydescription",
            "hasStatusDescription": "statusdescription",
            "hasOpenBagStatus": "isopenbag",
            "hasContinueInNextDeptStatus": "continueinnextdept",
            "hasCancelReason": "cancelreason",
        },
    ),
    "microbiologyevents": (
        "hasMicrobiologyEvent",
        {
            "hasSpecItemID": "spec_itemid",
            "hasSpecTypeDesc": "spec_type_desc",
            "hasOrgItemID": "org_itemid",
            "hasIsolateNum": "isolate_num",
            "hasABItemID": "ab_itemid",
            "hasInterpretation": "interpretation",
        },
    ),
    "outputevents": (
        "hasOutputEvent",
        {
            "hasMeasurementType": "itemid",
            "hasCaregiver": "cgid",
            "hasOutputEventStoppedStatus": "stopped",
            "hasOutputEventNewBottleStatus": "newbottle",
            "hasOutputErrorStatus": "iserror",
        },
    ),
    "prescriptions": (
        "hasPrescription",
        {"hasDrugType": "drug_type", "hasDrug": "drug", "hasDrugRoute": "route"},
    ),
    "procedureevents_mv": (
        "hasProcedureEvent",
        {
            "hasMeasurementType": "itemid",
            "hasProcedureLocation": "location",
            "hasProcedureLocationCategory": "locationcategory",
            "hasCaregiver": "cgid",
            "hasOrderCategoryName": "ordercategoryname",
            "hasSecondaryOrderCategoryName": "secondaryordercategoryname",
            "hasOrderCategoryDescription": "ordercategorydescription",
            "hasStatusDescription": "statusdescription",
            "hasOpenBagStatus": "isopenbag",
            "hasContinueInNextDeptStatus": "continueinnextdept",
            "hasCancelReason": "cancelreason",
        },
    ),
    "services": ("hasService", {"hasPrevServiceType": "prev_service", "hasCurrServiceType": "curr_service"}),
    "transfers": (
        "hasTransferEvent",
        {
            "hasTransferEventType": "eventtype",
            "hasTransferPrevCareunit": "prev_careunit",
            "hasTransferPrevWardID": "prev_wardid",
            "hasTransferCurrCareunit": "curr_careunit",
            "hasTransferCurrWardID": "curr_wardid",
        },
    ),
}
IN_STAY = {"inputevents_mv", "outputevents", "prescriptions", "procedureevents_mv", "transfers"}
ADMISSION = {
    "admissionType": "admission_type",
    "hasAdmissionLocation": "admission_location",
    "hasDischargeLocation": "discharge_location",
    "hasInsurance": "insurance",
    "hasLanguage": "language",
    "hasReligion": "religion",
    "hasMaritalStatus": "marital_status",
    "hasEthnicity": "ethnicity",
}
STAY = {
    "hasFirstCareUnit": "first_careunit",
    "hasLastCareUnit": "last_careunit",
    "hasFirstWardID": "first_wardid",
    "hasLastWardID": "last_wardid",
}
MIMIC_CONFIDENTIAL = {
    "hasCPTEvent",
    "hasDRG",
    "hasICDDiagnosis",
    "hasICDProcedure",
    "hasInputEvent",
    "hasMicrobiologyEvent",
    "hasNoteEvent",
    "hasPrescription",
    "hasProcedureEvent",
}


def mimic(as_published: bool) -> dict[str, str]:
    """For each predicate, the distinct pairs that make its triples."""
    queries: dict[str, list[str]] = {
        "hasGender": ["SELECT subject_id, gender FROM patients WHERE gender <> ''"],
        "hasExpireFlag": ["SELECT subject_id, expire_flag FROM patients WHERE expire_flag <> ''"],
        "hasAdmission": ["SELECT subject_id, hadm_id FROM admissions"],
        "hasICUStay": ["SELECT hadm_id, icustay_id FROM icustays"],
    }
    queries |= {p: [f"SELECT hadm_id, {c} FROM admissions WHERE {c} <> ''"] for p, c in ADMISSION.items()}
    queries |= {p: [f"SELECT icustay_id, {c} FROM icustays WHERE {c} <> ''"] for p, c in STAY.items()}
    for table, (link, columns) in EVENTS.items():
        inside = "'stay-' || icustay_id" if table in IN_STAY else "'admission-' || hadm_id"
        where = "WHERE icustay_id <> ''" if table in IN_STAY and as_published else ""
        event = f"'{table}-' || row_id" if table != "callout" or not as_published else "hadm_id"
        queries.setdefault(link, []).append(f"SELECT {inside}, {event} FROM {table} {where}")
        for predicate, column in columns.items():
            query = f"SELECT '{table}-' || row_id, {column} FROM {table} WHERE {column} <> ''"
            queries.setdefault(predicate, []).append(query)
    return {predicate: " UNION ".join(parts) for predicate, parts in queries.items()}


@pytest.fixture(scope="module")
def demos(data_folder: Path) -> Path:
    folder = data_folder / "medical"
    if not (folder / "eicu-demo").is_dir():
        pytest.skip("FEDKGE_DATA has no folder 'medical' with the demos of eICU and MIMIC-III")
    return folder


def counted(folder: Path, queries: dict[str, str]) -> dict[str, int]:
    """What SQLite counts of the files, all of whose fields are texts."""
    connection = sqlite3.connect(":memory:")
    for file in folder.glob("*.csv.gz"):
        with gzip.open(file, "rt", encoding="utf-8", newline="") as lines:
            rows = csv.reader(lines)
            names = next(rows)
            table = file.name.partition(".")[0].lower()
            connection.execute(f"CREATE TABLE {table} ({', '.join(f'{name} TEXT' for name in names)})")
            connection.executemany(f"INSERT INTO {table} VALUES ({','.join('?' * len(names))})", rows)
    counts = {
        predicate: connection.execute(f"SELECT count(*) FROM (SELECT DISTINCT * FROM ({query}))").fetchone()[
            0
        ]
        for predicate, query in queries.items()
    }
    connection.close()
    return {predicate: count for predicate, count in counts.items() if count}


def made(
    demos: Path, name: str, as_published: bool = False, draw: Draw | None = None, types: bool = False
) -> tuple[list[Row], Report]:
    source = open_source(str(demos / f"{name}-demo"))
    report = Report(name, source.name)
    mapping = mapping_of(name, as_published)
    return [row for batch in materialize(mapping, source, report, draw, types) for row in batch], report


def local(iri: str) -> str:
    return iri.rpartition("/")[2]


def per_predicate(report: Report) -> dict[str, int]:
    return {local(count.predicate): count.triples for count in report.predicates.values() if count.triples}


def confidential(report: Report) -> set[str]:
    return {local(count.predicate) for count in report.predicates.values() if count.confidential}


@pytest.mark.parametrize("as_published", [False, True])
def test_eicu_counts(demos: Path, as_published: bool) -> None:
    rows, report = made(demos, "eicu", as_published)
    assert per_predicate(report) == counted(demos / "eicu-demo", EICU)
    assert len(rows) == len(set(rows)) == report.triples == 251_729
    assert (report.entities, report.relations) == (135_799, 15)
    assert report.absent == report.empty == []
    expected = {"isDiagnosedAs", "isTakenCareBy"} if as_published else EICU_CONFIDENTIAL
    assert confidential(report) == expected
    assert report.confidential / report.links == pytest.approx(0.397 if as_published else 0.574, abs=5e-4)


def test_mimic_counts(demos: Path) -> None:
    rows, report = made(demos, "mimic-iii")
    assert per_predicate(report) == counted(demos / "mimic-iii-demo", mimic(as_published=False))
    assert len(rows) == len(set(rows)) == report.triples
    assert confidential(report) == MIMIC_CONFIDENTIAL
    assert report.absent == ["chartevents", "inputevents_cv", "labevents"]
    assert report.empty == ["noteevents"]


def test_mimic_counts_as_published(demos: Path) -> None:
    rows, report = made(demos, "mimic-iii", as_published=True)
    assert per_predicate(report) == counted(demos / "mimic-iii-demo", mimic(as_published=True))
    assert (report.triples, report.entities, report.relations) == (248_892, 59_397, 79)
    assert confidential(report) == set()
    tails = {local(o) for _, _, o in rows}
    assert not {local(s) for s, p, _ in rows if local(p) == "hasCancelReason"} & {
        tail for tail in tails if tail.startswith("InputEvent")
    }


def test_ours_leaves_no_event_on_its_own(demos: Path) -> None:
    """Each entity with statements of its own is one that an admission or a stay points to."""
    rows, _ = made(demos, "mimic-iii")
    pointed_at = {o for _, _, o in rows}
    alone = {s for s, _, _ in rows if s not in pointed_at}
    assert {local(s).partition("-")[0] for s in alone} == {"Subject"}


def test_classes_are_triples_unless_they_are_not_wanted(demos: Path) -> None:
    rows, report = made(demos, "eicu", types=True)
    assert report.relations == 16
    kinds = {local(s).partition("-")[0] for s, p, _ in rows if p == RDF_TYPE}
    assert kinds == {"AllergyName", "Diagnosis", "Drug", "Hospital", "Nurse", "Patient"}
    assert all(local(o) == local(s).partition("-")[0] for s, p, o in rows if p == RDF_TYPE)


def test_a_share_of_patients_keeps_all_that_is_said_of_them(demos: Path) -> None:
    whole, _ = made(demos, "eicu")
    some, _ = made(demos, "eicu", draw=Draw(share=0.05, seed=1))
    again, _ = made(demos, "eicu", draw=Draw(share=0.05, seed=1))
    other, _ = made(demos, "eicu", draw=Draw(share=0.05, seed=2))
    assert some == again != other
    assert set(some) <= set(whole)
    stays = {s for s, p, _ in some if local(p) == "staysAt"}
    about = [row for row in whole if row[0] in stays]
    assert about == [row for row in some if local(row[0]).startswith("Patient-")]
    with gzip.open(demos / "eicu-demo" / "patient.csv.gz", "rt", encoding="utf-8") as lines:
        person = {row["patientunitstayid"]: row["uniquepid"] for row in csv.DictReader(lines)}
    drawn = {person[local(stay).partition("-")[2]] for stay in stays}
    assert len(drawn) == -(-len(set(person.values())) * 5 // 100)
    assert {stay for stay, who in person.items() if who in drawn} == {
        local(stay).partition("-")[2] for stay in stays
    }


def test_a_month_of_admissions(demos: Path) -> None:
    with gzip.open(demos / "mimic-iii-demo" / "ADMISSIONS.csv.gz", "rt", encoding="utf-8") as lines:
        admissions = list(csv.DictReader(lines))
    month = admissions[0]["admittime"][:7]
    chosen = {row["hadm_id"] for row in admissions if row["admittime"].startswith(month)}
    rows, _ = made(demos, "mimic-iii", draw=Draw(month=month))
    found = {local(o).split("-")[2] for _, p, o in rows if local(p) == "hasAdmission"}
    assert found == chosen
    assert {local(s).split("-")[2] for s, _, _ in rows if local(s).startswith("ICUStay-")} <= chosen
    subjects = {row["subject_id"] for row in admissions if row["hadm_id"] in chosen}
    assert {local(s).split("-")[1] for s, p, _ in rows if local(p) == "hasGender"} == subjects
    with pytest.raises(DataError, match="no record in a sample of 1850-01"):
        made(demos, "mimic-iii", draw=Draw(month="1850-01"))


def test_marks_reach_the_graph_that_is_trained_on(demos: Path) -> None:
    graph = load_graph(f"mapped:source={demos}/eicu-demo,mapping=eicu,types=0,sample=0.1")
    marked = {graph.relation_labels[r] for r in graph.train[graph.marks("train"), 1]}
    free = {graph.relation_labels[r] for r in graph.train[~graph.marks("train"), 1]}
    assert {local(label) for label in marked} == EICU_CONFIDENTIAL
    assert marked.isdisjoint(free)


def test_the_papers_table_is_quoted_as_printed() -> None:
    eicu, mimic_iii = (SHIPPED[name].published for name in ("eicu", "mimic-iii"))
    assert eicu.confidential / eicu.train == pytest.approx(0.5727, abs=1e-4)
    assert mimic_iii.confidential / mimic_iii.train == pytest.approx(0.4403, abs=1e-4)
    assert eicu.triples == 353_267
