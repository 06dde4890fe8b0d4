-- Once, on any node, when the cluster runs: psql -h <leader> -U postgres -f database.sql
CREATE ROLE plantstore LOGIN PASSWORD 'change-me-plantstore';
CREATE DATABASE plants OWNER plantstore ENCODING 'UTF8' TEMPLATE template0;
