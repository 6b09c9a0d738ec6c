-- The caller's environment and the secrets lie in a file of their own, where store/upgrade.py has put them before.

ALTER TABLE experiment DROP COLUMN environment;
DROP TABLE secrets;
